"""AMLA and online MLA, run as lowered for Ascend, against the operator's reference."""

from __future__ import annotations

import re

import pytest
import torch

from sglang_ascend.kernel_proof.comparison import assert_close
from sglang_ascend.kernel_proof.frontend import lower
from sglang_ascend.kernel_proof.native_run import native_backend
from sglang_ascend.kernels.gqa_attention import DECODE_SPEC, PREFILL_SPEC
from sglang_ascend.kernels.mla_decode import AMLA_SPEC, ONLINE_SPEC, mla_attend
from sglang_ascend.ops.paged_mla_attention import reference
from sglang_ascend.ops.spec import OperatorError
from tests.kernels.attention_cases import in_float32, mla_case
from tests.kernels.recording import Recorder

METHODS = {"amla_decode": "amla", "mla_decode": "online"}
# Fewer keys than a page, a page but for one key, a page, one key more; a request without queries.
BOUNDARIES = [1, 127, 128, 129, 300]

# (kernel, heads, query lens, kv lens) -> the configuration that takes the call.
CASES = [
    ("amla_decode", 16, [1, 1, 1, 1, 0], BOUNDARIES, "rows16"),
    ("amla_decode", 16, [1, 1], [1025, 3], "rows16_split"),
    ("amla_decode", 16, [2, 4, 1], [2, 131, 257], "rows32"),
    ("amla_decode", 64, [3, 1], [769, 128], "rows32_split"),
    ("mla_decode", 16, [1, 1, 0, 1, 1], BOUNDARIES, "rows16"),
    ("mla_decode", 16, [1, 1], [1025, 3], "rows16_split"),
    ("mla_decode", 32, [1, 0, 1], [129, 5, 256], "rows32"),
    ("mla_decode", 32, [1], [770], "rows32_split"),
    ("mla_decode", 32, [2, 4], [130, 256], "rows64"),
    ("mla_decode", 128, [1], [897], "rows64_split"),
]


@pytest.mark.parametrize("kernel, heads, query_lens, kv_lens, config", CASES)
def test_result_is_the_reference(kernel, heads, query_lens, kv_lens, config):
    case = mla_case(heads, query_lens, kv_lens)
    recorder = Recorder()
    got = mla_attend(**case, method=METHODS[kernel], on=recorder.backend)
    assert recorder.ran[0] == f"{kernel}/{config}"
    assert ("split_combine/dim512" in recorder.ran) == config.endswith("_split")
    assert_close(kernel, "bf16", got, reference(**in_float32(case)))


@pytest.mark.parametrize("kernel", METHODS)
def test_keys_with_a_score_of_minus_infinity_weigh_nothing(kernel):
    case = mla_case(16, [1], [200])
    case["rope_cache"].nan_to_num_()[:, ::3] = float("-inf")
    case["query_rope"] = case["query_rope"].abs()
    got = mla_attend(**case, method=METHODS[kernel], on=native_backend())
    want = reference(**in_float32(case))
    assert not bool(want.isnan().any())
    assert_close(kernel, "bf16", got, want)


@pytest.mark.parametrize("kernel", METHODS)
def test_a_stretch_whose_scores_are_all_minus_infinity_weighs_nothing(kernel):
    case = mla_case(16, [1], [1025])
    case["query_rope"] = case["query_rope"].abs()
    case["rope_cache"][case["block_table"][0, :3].long()] = float("-inf")
    recorder = Recorder()
    got = mla_attend(**case, method=METHODS[kernel], on=recorder.backend)
    assert recorder.ran[0] == f"{kernel}/rows16_split"
    assert_close(kernel, "bf16", got, reference(**in_float32(case)))


@pytest.mark.parametrize("kernel", METHODS)
def test_values_near_the_largest_float_stay_finite(kernel):
    case = mla_case(16, [1], [40])
    case["query_latent"] = case["query_latent"].clone()
    case["query_latent"][..., 7] = 0.0
    case["latent_cache"][int(case["block_table"][0, 0]), 0, 0, 7] = 3.0e38
    got = mla_attend(**case, method=METHODS[kernel], on=native_backend())
    assert_close(kernel, "bf16", got, reference(**in_float32(case)))


@pytest.mark.parametrize("spec", [AMLA_SPEC, ONLINE_SPEC, DECODE_SPEC, PREFILL_SPEC])
def test_places_of_blocks_are_computed_in_64_bits(spec):
    """Block times block stride passes 2^31 at 32768 blocks of 128 latents."""
    linalg = lower(spec, spec.configs[0]).linalg
    assert len(re.findall(r"= arith.muli %\w+, %\w+ : i64", linalg)) >= 2


def test_no_request_has_queries():
    case = mla_case(16, [0, 0], [5, 130])
    got = mla_attend(**case, on=native_backend())
    assert torch.equal(got, torch.zeros(2, 16, 512, dtype=torch.bfloat16))


def test_there_is_no_request():
    case = mla_case(16, [], [], padding=0)
    assert mla_attend(**case, on=native_backend()).shape == (0, 16, 512)


REFUSED = [
    ("query_latent", lambda case: case["query_latent"].half(), "missing dtype=torch.float16"),
    ("query_latent", lambda case: case["query_latent"][:, :8], "missing heads=8; device cpu"),
    ("latent_cache", lambda case: case["latent_cache"][..., ::2], "last_stride=2"),
    ("rope_cache", lambda case: case["rope_cache"][:, :64], "missing page_size=64"),
    ("query_lens", lambda case: [5], "missing query_len=5"),
    ("kv_lens", lambda case: [100000], "0 <= query_len <= kv_len"),
]


@pytest.mark.parametrize("name, value, words", REFUSED)
def test_a_call_outside_the_features_is_refused(name, value, words):
    case = mla_case(16, [1], [40])
    case[name] = value(case)
    with pytest.raises(OperatorError, match=words):
        mla_attend(**case, on=native_backend())


def test_an_unknown_method_is_refused():
    with pytest.raises(OperatorError, match="method must be one of online, amla, got 'fast'"):
        mla_attend(**mla_case(16, [1], [40]), method="fast", on=native_backend())


def test_a_tensor_on_another_device_is_refused():
    case = mla_case(16, [1], [40])
    with pytest.raises(OperatorError, match="missing npu; device cpu"):
        mla_attend(**case)
