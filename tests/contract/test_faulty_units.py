"""An NPU call with a fault does not pass: each kind of fault is named by the check."""

from __future__ import annotations

import pytest

from sglang_ascend.contract import outcome
from sglang_ascend.contract.expected import expected_outcome
from sglang_ascend.ops import load_all

RMS_NORM = {
    "unknown_argument": "expected at most 3 argument(s) but received 4",
    "missing_argument": "missing value for argument 'gamma'",
    "none_for_a_tensor": "Expected a proper Tensor but got None",
    "unknown_operator": "no attribute 'npu_root_mean_square_norm'",
    "all_results": "1 results expected, got 2",
    "wrong_dtype": "y: dtype must be bfloat16, got float32",
    "wrong_shape": "y: shape must be [8, 576], got [1, 8, 576]",
    "wrong_strides": "y: stride must be [576, 1], got [1, 8]",
    "gives_back_an_argument": "y: shares must be None, got x",
    "left_on_the_host": "at least two devices, npu:0 and cpu",
    "reads_a_value": "the host reads a value of an npu tensor",
    "reads_a_shape_from_values": "the host reads a value of an npu tensor",
    "writes_an_argument": "x is written, and SPEC.mutates does not say so",
    "quant_k_mismatch": "k dim of x1 and x2 need be same",
}
OTHERS = {
    "unknown_layout": "Layout XYZ is not supported",
    "unknown_mask_mode": "sparse_mode must be one of (0, 1, 2, 3, 4), got 11",
    "lengths_as_a_tensor": "for argument 'actual_seq_lengths_kv' but instead found type 'Tensor'",
    "old_keyword": "Unknown keyword argument 'num_kv_heads'",
    "k_mismatch": "npu::npu_grouped_matmul: x has 256 columns, weight 272 rows",
    "unknown_list_type": "group_list_type must be one of (0, 1, 2), got 7",
    "copied_cache": "key_cache is to be written, but only a copy of it is",
    "undocumented_mode": "cache_mode must be one of ('Norm', 'PA_NZ'), got 'PA_ND'",
    "no_group": "group_ep must name a communicator",
    "rank_outside_the_group": "ep_rank_id must be in 0..31, got 32",
}


@pytest.fixture(scope="module")
def verdicts(on_torch_npu) -> dict:
    return on_torch_npu("tests.contract.faulty_units")


def _said(verdict: dict, operator_name: str | None = None) -> str:
    if "error" in verdict:
        return verdict["error"]
    found = verdict["problems"]
    if operator_name:
        operator = load_all()[operator_name]
        case = operator.contract[0]
        wanted = expected_outcome(operator, lambda device: case.build(device, case.dtype))
        names = outcome.names(operator.spec)
        found = [*found, *outcome.differences(wanted, verdict["outputs"], names)]
    return "; ".join(found)


@pytest.mark.parametrize("fault", RMS_NORM)
def test_faults_in_a_norm(verdicts, fault):
    assert RMS_NORM[fault] in _said(verdicts[fault], "rms_norm")


@pytest.mark.parametrize("fault", OTHERS)
def test_faults_in_other_calls(verdicts, fault):
    assert OTHERS[fault] in _said(verdicts[fault])


def test_right_calls_pass(verdicts):
    assert _said(verdicts["right"], "rms_norm") == ""
    assert _said(verdicts["right_attention"], "paged_gqa_attention") == ""
    assert set(verdicts) == {*RMS_NORM, *OTHERS, "right", "right_attention", "kept", "computed"}


def test_the_stand_in_holds_values_and_computes_none(verdicts):
    assert verdicts["kept"] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert "stand-in for CANN: it holds tensors, it computes nothing" in verdicts["computed"]
