"""Greedy tokens equal transformers' in float32, token for token, whatever the batch and cache.

Where two logits of the reference itself tie within rounding (``TIE``), either token is right and
the comparison ends there for that prompt.
"""

from __future__ import annotations

import random

import pytest

from tests.support.prompts import LONG_PROMPT, PROMPTS
from tests.support.reference import assert_same_tokens

TOKENS = 24
PARAMS = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
MODELS = ("smollm2-135m-instruct", "tiny-deepseek-v3")


@pytest.fixture(params=MODELS)
def served(request, references):
    """A model's server (page size 1 for SmolLM2, 128 for tiny-deepseek-v3) and its yardstick."""
    name = "smollm2_server" if request.param.startswith("smollm2") else "tiny_deepseek_server"
    return request.getfixturevalue(name), references(request.param)


def check(server, reference, prompts, tokens=TOKENS):
    body = {"text": prompts, "sampling_params": {**PARAMS, "max_new_tokens": tokens}}
    for prompt, answer in zip(prompts, server.generate(body), strict=True):
        assert_same_tokens(prompt, answer["output_ids"], reference.greedy(prompt, TOKENS))


def test_alone(served):
    server, reference = served
    for prompt in PROMPTS:
        server.flush_cache()
        check(server, reference, [prompt])


def test_one_mixed_batch(served):
    """All prompts at once: long ones are prefilled in chunks while short ones decode."""
    server, reference = served
    server.flush_cache()
    check(server, reference, PROMPTS)


def test_prefix_hits(served):
    """Every prompt is in the cache already, in whole or in part."""
    server, reference = served
    check(server, reference, PROMPTS)
    check(server, reference, random.Random(0).sample(PROMPTS, len(PROMPTS)))


def test_prefix_hit_then_a_long_suffix(served):
    server, reference = served
    server.flush_cache()
    head = LONG_PROMPT[: len(LONG_PROMPT) // 3]
    check(server, reference, [head])
    check(server, reference, [LONG_PROMPT, head, LONG_PROMPT])


_MORE_PAGE_SIZES = ((MODELS[0], 32), (MODELS[1], 16), (MODELS[1], 64))


@pytest.mark.parametrize(
    ("model", "page_size"),
    # Beside these: SmolLM2 at 1 and tiny-deepseek-v3 at 128 are the servers of the tests above.
    [(MODELS[0], 16), (MODELS[0], 64), (MODELS[1], 1), (MODELS[1], 32)]
    + [pytest.param(*case, marks=pytest.mark.slow) for case in _MORE_PAGE_SIZES],
)
def test_page_sizes_and_a_cache_too_small(start_server, references, model, page_size):
    """A pool that holds a fraction of the prompts: requests queue, prefixes are evicted."""
    server = start_server(
        "--model-path",
        model,
        "--page-size",
        str(page_size),
        "--max-total-tokens",
        "2048",
        "--chunked-prefill-size",
        "128",
        "--enable-mixed-chunk",
    )
    for _ in range(2):
        check(server, references(model), PROMPTS)
    server.stop()


def test_gqa_at_the_ascend_page_size(start_server, references):
    server = start_server(
        "--page-size", "128", "--max-total-tokens", "8192", "--chunked-prefill-size", "256"
    )
    check(server, references(MODELS[0]), PROMPTS)
    server.stop()
