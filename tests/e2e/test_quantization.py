"""Greedy tokens of ``ascend_w8a8`` equal those of integers summed in int32, token for token."""

from __future__ import annotations

import pytest

from sglang_ascend.models import catalog
from sglang_ascend.quantization import writer
from tests.support.int8_reference import TIE, Int8Reference
from tests.support.prompts import PROMPTS

TOKENS = 16
#: Short ones and one over several prefill chunks; integer products on a CPU take their time.
CHOSEN = [*PROMPTS[:9], PROMPTS[-1]]


@pytest.fixture(scope="module")
def reference():
    return Int8Reference(catalog.resolve(catalog.TINY_DEEPSEEK_V3))


def check(server, reference, repeats: int = 2):
    params = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
    for _ in range(repeats):  # the second time, prompts are in the cache
        answers = server.generate({"text": CHOSEN, "sampling_params": params})
        for prompt, answer in zip(CHOSEN, answers, strict=True):
            _assert_same(prompt, answer["output_ids"], reference.greedy(prompt, TOKENS))


def _assert_same(prompt, got, expected):
    for position, (ours, theirs) in enumerate(zip(got, expected.ids, strict=True)):
        if ours == theirs:
            continue
        margin = expected.margins[position]
        assert margin < TIE, f"{prompt[:40]!r}: token {position} differs by {margin:.2e}"
        return


def test_a_float_checkpoint_quantised_while_loading(start_server, reference):
    server = start_server(
        *("--model-path", "tiny-deepseek-v3", "--page-size", "128", "--max-total-tokens", "8192"),
        *("--chunked-prefill-size", "256", "--quantization", "ascend_w8a8"),
    )
    check(server, reference)
    server.stop()


_RANKS = ("--tp-size", "2", "--dp-size", "2", "--enable-dp-attention", "--ep-size", "2")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "flags"),
    [
        ("compressed-tensors", ()),
        ("modelslim", (*_RANKS, "--ep-dispatch", "alternate", "--ep-wire", "int8")),
    ],
)
def test_int8_checkpoints_are_recognised(start_server, reference, tmp_path, form, flags):
    source = writer.Source(catalog.resolve(catalog.TINY_DEEPSEEK_V3))
    writer.write(source, tmp_path / form, form)
    server = start_server(
        *("--model-path", str(tmp_path / form), "--page-size", "128", "--max-total-tokens", "8192"),
        *flags,
    )
    check(server, reference)
    server.stop()
