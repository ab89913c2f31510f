"""GQA prefill and decode, run as lowered for Ascend, against the operator's reference."""

from __future__ import annotations

import pytest
import torch

from sglang_ascend.kernel_proof.comparison import assert_close
from sglang_ascend.kernel_proof.native_run import native_backend
from sglang_ascend.kernels.gqa_attention import gqa_attend
from sglang_ascend.ops.paged_gqa_attention import reference
from sglang_ascend.ops.spec import OperatorError
from tests.kernels.attention_cases import gqa_case, in_float32
from tests.kernels.recording import Recorder

BOUNDARIES = [1, 127, 128, 129, 300]

# heads, key heads, dim, query lens, kv lens -> kernel and configuration that take the call.
CASES = [
    (9, 3, 64, [1, 1, 0, 1, 1], BOUNDARIES, "gqa_decode/rows16_dim64"),
    (9, 3, 64, [1, 4], [1100, 4], "gqa_decode/rows16_dim64_split"),
    (28, 2, 64, [2, 3], [130, 256], "gqa_decode/rows64_dim64"),
    (20, 1, 64, [3, 1], [1290, 7], "gqa_decode/rows64_dim64_split"),
    (32, 4, 128, [1, 0, 1], [129, 5, 256], "gqa_decode/rows16_dim128"),
    (32, 4, 128, [2], [1500], "gqa_decode/rows16_dim128_split"),
    (64, 1, 128, [1, 1], [128, 257], "gqa_decode/rows64_dim128"),
    (64, 2, 128, [1, 1], [1282, 1], "gqa_decode/rows64_dim128_split"),
    (6, 3, 64, [129, 1, 0, 40], [129, 300, 7, 296], "gqa_prefill/rows128_dim64"),
    (2, 1, 128, [5, 200], [5, 328], "gqa_prefill/rows128_dim128"),
]


@pytest.mark.parametrize("heads, kv_heads, dim, query_lens, kv_lens, config", CASES)
def test_result_is_the_reference(heads, kv_heads, dim, query_lens, kv_lens, config):
    case = gqa_case(heads, kv_heads, dim, query_lens, kv_lens)
    recorder = Recorder()
    got = gqa_attend(**case, on=recorder.backend)
    assert recorder.ran[0] == config
    assert (f"split_combine/dim{dim}" in recorder.ran) == config.endswith("_split")
    assert_close(config.partition("/")[0], "bf16", got, reference(**in_float32(case)))


@pytest.mark.parametrize("query_lens, kernel", [([2, 1], "gqa_decode"), ([7, 140], "gqa_prefill")])
def test_without_a_causal_mask_every_query_sees_every_key(query_lens, kernel):
    case = gqa_case(4, 2, 64, query_lens, [7, 260])
    got = gqa_attend(**case, causal=False, on=native_backend())
    assert_close(kernel, "bf16", got, reference(**in_float32(case), causal=False))


@pytest.mark.parametrize("query_lens, kernel", [([1], "gqa_decode"), ([9], "gqa_prefill")])
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_an_infinite_value_shows_where_it_is(query_lens, kernel, value):
    case = gqa_case(2, 1, 64, query_lens, [70])
    case["value_cache"][int(case["block_table"][0, 0]), 3, 0, 5] = value
    got = gqa_attend(**case, on=native_backend())
    want = reference(**in_float32(case))
    assert not bool(want[: query_lens[0], :, 5].isfinite().any())
    assert_close(kernel, "bf16", got, want)


def test_a_stretch_whose_scores_are_all_minus_infinity_weighs_nothing():
    case = gqa_case(2, 1, 64, [1], [1025])
    case["query"] = case["query"].abs()
    case["key_cache"][case["block_table"][0, :3].long(), :, :, 0] = float("-inf")
    recorder = Recorder()
    got = gqa_attend(**case, on=recorder.backend)
    assert recorder.ran[0] == "gqa_decode/rows16_dim64_split"
    assert_close("gqa_decode", "bf16", got, reference(**in_float32(case)))


REFUSED = [
    ("query", lambda case: case["query"].float(), "missing dtype=torch.float32"),
    ("query", lambda case: case["query"][..., :48], "missing head_dim=48; device cpu"),
    ("value_cache", lambda case: case["value_cache"].repeat(1, 1, 1, 2), "missing value_dim=128"),
    ("key_cache", lambda case: case["key_cache"][:, :64], "missing page_size=64"),
    ("kv_lens", lambda case: [0], "0 <= query_len <= kv_len"),
]


@pytest.mark.parametrize("name, value, words", REFUSED)
def test_a_call_outside_the_features_is_refused(name, value, words):
    case = gqa_case(2, 1, 64, [1], [40])
    case[name] = value(case)
    with pytest.raises(OperatorError, match=words):
        gqa_attend(**case, on=native_backend())


def test_no_request_has_queries():
    case = gqa_case(2, 1, 64, [0, 0], [5, 130])
    got = gqa_attend(**case, on=native_backend())
    assert torch.equal(got, torch.zeros(2, 2, 64, dtype=torch.bfloat16))


def test_there_is_no_request():
    case = gqa_case(2, 1, 64, [], [])
    case["query"] = case["query"][:0]
    assert gqa_attend(**case, on=native_backend()).shape == (0, 2, 64)
