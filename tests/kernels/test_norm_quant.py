"""Kernels that end in INT8 rows, run natively against their operators."""

from __future__ import annotations

import re

import pytest
import torch

from sglang_ascend.kernel_proof import hivm
from sglang_ascend.kernel_proof.comparison import assert_close
from sglang_ascend.kernel_proof.frontend import lower
from sglang_ascend.kernel_proof.native_run import native_backend
from sglang_ascend.kernels.dynamic_quant import SPEC, dynamic_quant_launch
from sglang_ascend.kernels.rms_norm_quant import add_rms_norm_quant_launch, rms_norm_quant_launch
from sglang_ascend.kernels.swiglu_quant import swiglu_quant_launch
from sglang_ascend.ops.add_rms_norm_quant import add_rms_norm_quant
from sglang_ascend.ops.dynamic_quant import dynamic_quant
from sglang_ascend.ops.rms_norm_quant import rms_norm_quant
from sglang_ascend.ops.spec import OperatorError
from sglang_ascend.ops.swiglu_quant import swiglu_quant
from tests.kernels.quantised_rows import assert_quantised

ON = native_backend("910B")
BF16 = torch.bfloat16


def strided(rows: int, hidden: int, factor: float = 1.0) -> torch.Tensor:
    """A part of the columns of a wider tensor, as a joint projection gives it; NaN around it."""
    wide = torch.full((rows, hidden + 40), float("nan"), dtype=BF16)
    wide[:, 24 : 24 + hidden] = (torch.randn(rows, hidden) * factor).to(BF16)
    return wide[:, 24 : 24 + hidden]


@pytest.mark.parametrize(("rows", "hidden"), [(50, 7168), (3, 1536), (1, 1), (7, 33), (2, 8192)])
def test_dynamic_quant(rows, hidden):
    torch.manual_seed(0)
    x = strided(rows, hidden, 3.0)
    if hidden > 1:
        x[0, -1] = 300.0
    q, scale = dynamic_quant_launch(x, ON)
    want_q, want_scale = dynamic_quant(x)
    assert_close("dynamic_quant", "bf16", scale, want_scale)
    assert torch.equal(q, want_q)


def test_ties_round_to_even_and_extremes_stay_in_range():
    ties = torch.tensor([127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, -126.5, -127.0, 125.5])
    x = torch.stack((ties, torch.zeros(11), torch.full((11,), 3.0e38))).to(BF16)
    q, scale = dynamic_quant_launch(x, ON)
    assert q[0].tolist() == [127, 0, 2, 2, 0, -2, -2, 126, -126, -127, 126]
    assert scale.tolist()[:2] == [1.0, 0.0] and not bool(q[1].any())
    want_q, want_scale = dynamic_quant(x)
    assert torch.equal(q, want_q) and torch.equal(scale, want_scale)


def test_rounding_by_two_additions_survives_the_compiler():
    """A compiler that added the constants up first would leave truncation, and no host run shows
    what the NPU's compiler does.
    """
    config = SPEC.config("cols2048_bf16")
    text, _ = hivm.hivm_text(lower(SPEC, config).linalg, hivm.flags_of(config, "910B"))
    for constant in ("0x4B400000", "0xCB400000"):  # 1.5 * 2**23 and its negative
        name = re.search(rf"(%\w+) = arith.constant {constant} : f32", text)[1]
        assert re.search(rf"call @vadds\w*\([^)]*{name},", text), constant


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
def test_a_row_that_is_not_finite_says_so_in_its_scale_and_spoils_no_other(bad):
    torch.manual_seed(0)
    x = strided(5, 1536)
    x[2, 700] = bad
    weight = torch.randn(1536, dtype=BF16)
    gate_up = strided(5, 1024)
    gate_up[2, 800] = bad
    counts = torch.tensor([5])
    others = [0, 1, 3, 4]
    for kernel, got, want in (
        ("dynamic_quant", dynamic_quant_launch(x, ON), dynamic_quant(x)),
        (
            "rms_norm_quant",
            rms_norm_quant_launch(x, weight, 1e-6, ON),
            rms_norm_quant(x, weight, 1e-6),
        ),
        ("swiglu_quant", swiglu_quant_launch(gate_up, counts, ON), swiglu_quant(gate_up, counts)),
    ):
        assert not bool(got[1][2].isfinite()) and not bool(want[1][2].isfinite()), kernel
        assert_quantised(kernel, got[0][others], got[1][others], want[0][others], want[1][others])


@pytest.mark.parametrize(("rows", "hidden"), [(45, 1536), (3, 7168), (4, 257)])
def test_rms_norm_quant(rows, hidden):
    torch.manual_seed(0)
    x, weight = strided(rows, hidden, 20.0), torch.randn(hidden, dtype=BF16)
    x[0] = 0.0
    got = rms_norm_quant_launch(x, weight, 1e-6, ON)
    assert_quantised("rms_norm_quant", *got, *rms_norm_quant(x, weight, 1e-6))
    assert not bool(got[0][0].any()) and float(got[1][0]) == 0.0


@pytest.mark.parametrize(("rows", "hidden"), [(45, 7168), (3, 576)])
def test_add_rms_norm_quant(rows, hidden):
    torch.manual_seed(0)
    x, residual = strided(rows, hidden), strided(rows, hidden, 5.0)
    weight = torch.randn(hidden, dtype=BF16)
    q, scale, total = add_rms_norm_quant_launch(x, residual, weight, 1e-6, ON)
    want_q, want_scale, want_total = add_rms_norm_quant(x, residual, weight, 1e-6)
    assert_quantised("add_rms_norm_quant", q, scale, want_q, want_scale)
    assert torch.equal(total, want_total)


@pytest.mark.parametrize(
    ("counts", "inter"), [([3, 0, 40, 1], 2048), ([0, 0], 2048), ([50], 64), ([1, 1], 3)]
)
def test_swiglu_quant_leaves_rows_of_nobody_alone(counts, inter):
    torch.manual_seed(0)
    used = sum(counts)
    x, counts = strided(used + 4, 2 * inter, 4.0), torch.tensor(counts)
    x[used:] = float("nan")
    q, scale = swiglu_quant_launch(x, counts, ON)
    want_q, want_scale = swiglu_quant(x, counts)
    if used:
        real = slice(0, used)
        assert_quantised("swiglu_quant", q[real], scale[real], want_q[real], want_scale[real])
    assert bool(scale[used:].isnan().all()) and bool((q[used:] == 127).all())


def test_a_scale_of_one_denormal_step_keeps_integers_in_range():
    """190 steps of 2**-149: the scale, 1.496 steps, becomes one, and the quotient 190."""
    gate, up = torch.full((1, 4), 2.0**-100), torch.tensor([[1.0, -1.0, 0.5, 0.0]])
    x = torch.cat((gate, up * 1.484375 * 2.0**-41), 1).to(BF16)
    q, scale = swiglu_quant_launch(x, torch.tensor([1]), ON)
    want_q, want_scale = swiglu_quant(x, torch.tensor([1]))
    assert scale.item() == want_scale.item() == 2.0**-149
    assert q.tolist() == want_q.tolist() == [[127, -127, 95, 0]]


def test_no_rows():
    q, scale = dynamic_quant_launch(torch.empty(0, 64, dtype=BF16), ON)
    assert q.shape == (0, 64) and scale.shape == (0,)


def test_outside_the_declared_features():
    with pytest.raises(OperatorError) as error:
        dynamic_quant_launch(torch.zeros(2, 9000), ON)
    assert str(error.value) == (
        "dynamic_quant: required dtype=torch.float32, hidden=9000, element_stride=1; supported"
        " dtype one of torch.bfloat16, hidden at most 8192, element_stride one of 1; missing"
        " dtype=torch.float32, hidden=9000; device cpu"
    )
    with pytest.raises(OperatorError, match="missing element_stride=4; device cpu"):
        dynamic_quant_launch(torch.zeros(8, 4, dtype=BF16).t(), ON)
    with pytest.raises(OperatorError, match=r"weight axis 0 \(hidden\) must be 8 as in x, got 7"):
        rms_norm_quant_launch(torch.zeros(2, 8, dtype=BF16), torch.zeros(7, dtype=BF16), 1e-6, ON)
    with pytest.raises(OperatorError, match="missing width=7"):
        swiglu_quant_launch(torch.zeros(2, 7, dtype=BF16), torch.tensor([1]), ON)
    with pytest.raises(OperatorError, match="required a tensor on npu; .* device cpu"):
        dynamic_quant_launch(torch.zeros(2, 8, dtype=BF16))
