"""RadixAttention: shared prefixes are computed once, and a cache hit never changes an answer."""

from __future__ import annotations

import pytest

from tests.support.prompts import LONG_PROMPT

GREEDY = {"temperature": 0, "max_new_tokens": 12}


@pytest.fixture
def empty_cache(smollm2_server):
    smollm2_server.flush_cache()
    return smollm2_server


def ask(server, text):
    return server.generate({"text": text, "sampling_params": GREEDY})


def cached(answer) -> int:
    return answer["meta_info"]["cached_tokens"]


def test_prefix_is_computed_once(empty_cache):
    first = ask(empty_cache, LONG_PROMPT + " The first one")
    second = ask(empty_cache, LONG_PROMPT + " Another one")
    assert cached(first) == 0
    shared = first["meta_info"]["prompt_tokens"] - 10
    assert cached(second) >= shared


def test_hit_does_not_change_the_answer(empty_cache):
    cold = ask(empty_cache, LONG_PROMPT)
    warm = ask(empty_cache, LONG_PROMPT)
    assert cached(warm) > 0
    assert warm["output_ids"] == cold["output_ids"]


def test_batch_shares_its_prefix(empty_cache):
    ask(empty_cache, LONG_PROMPT)
    texts = [f"{LONG_PROMPT} Case {i}:" for i in range(6)]
    answers = empty_cache.generate({"text": texts, "sampling_params": GREEDY})
    assert all(cached(answer) > 400 for answer in answers)


def test_answers_survive_eviction_and_retraction(start_server):
    """A pool of 2048 tokens for 8 requests of 400 and more: evictions and retractions."""
    server = start_server(
        "--model-path",
        "tiny-deepseek-v3",
        "--max-total-tokens",
        "2048",
        "--chunked-prefill-size",
        "256",
    )
    texts = [f"Story {i}. " + LONG_PROMPT[: 900 + 40 * i] for i in range(8)]
    params = {"temperature": 0, "max_new_tokens": 120, "ignore_eos": True}
    alone = []
    for text in texts:
        server.flush_cache()
        alone.append(server.generate({"text": text, "sampling_params": params})["output_ids"])
    together = server.generate({"text": texts, "sampling_params": params})
    assert [answer["output_ids"] for answer in together] == alone
    log = server.log.read_text()
    assert "retract" in log.lower(), "the pool was meant to be too small for all at once"
