"""Operators of quantised paths: what they compute, and that each NPU call means the same."""

from __future__ import annotations

import pytest
import torch

from sglang_ascend.ops import load_all
from sglang_ascend.ops.add_rms_norm_quant import add_rms_norm_quant
from sglang_ascend.ops.quant_grouped_matmul import quant_grouped_matmul
from sglang_ascend.ops.quant_matmul import integer_product, quant_matmul
from sglang_ascend.ops.rms_norm import rms_norm
from sglang_ascend.ops.rms_norm_quant import rms_norm_quant
from sglang_ascend.ops.spec import OperatorError
from sglang_ascend.ops.swiglu import swiglu
from sglang_ascend.ops.swiglu_quant import swiglu_quant
from tests.ops import quant_semantics

OPS = load_all()
BF16, F16, F32, INT8 = torch.bfloat16, torch.float16, torch.float32, torch.int8


@pytest.fixture(scope="module", autouse=True)
def documented_npu():
    if hasattr(torch.ops.npu, "npu_dynamic_quant"):
        pytest.skip("the real torch_npu is loaded in this process")
    with torch.library._scoped_library("npu", "FRAGMENT") as library:
        quant_semantics.define(library)
        yield


def integers(*shape: int) -> torch.Tensor:
    return torch.randint(-128, 128, shape, dtype=INT8)


def assert_within_a_step(q, scale, y):
    """Half a step of rounding, and what float32 arithmetic adds to it."""
    error = (q.float() * scale[:, None] - y.float()).abs()
    assert bool((error <= scale[:, None] * (0.5 + 1e-3)).all())
    # The largest value of a row is a whole number of steps: a wrong scale would show here.
    assert bool((q.abs().amax(1) == 127).all())


@pytest.mark.parametrize("tokens", [1, 6])
def test_the_fused_operators_are_their_parts(tokens):
    torch.manual_seed(0)
    x, residual, weight = torch.randn(tokens, 96), torch.randn(tokens, 96), torch.randn(96)
    assert_within_a_step(*rms_norm_quant(x, weight, 1e-6), rms_norm(x, weight, 1e-6))
    q, scale, total = add_rms_norm_quant(x, residual, weight, 1e-6)
    assert torch.equal(total, x + residual)
    assert_within_a_step(q, scale, rms_norm(total, weight, 1e-6))
    q, scale = swiglu_quant(x, torch.tensor([tokens - 1, 0]))
    assert_within_a_step(q[: tokens - 1], scale[: tokens - 1], swiglu(x[: tokens - 1]))


def test_the_norm_is_not_rounded_before_it_is_quantised():
    torch.manual_seed(0)
    x, weight = torch.randn(64, 512).to(BF16), torch.randn(512).to(BF16)
    q, scale = rms_norm_quant(x, weight, 1e-6)
    assert_within_a_step(q, scale, rms_norm(x.float(), weight.float(), 1e-6))


@pytest.mark.parametrize("rows_in", [1024, 1025, 7168])
def test_integer_products_are_exact(rows_in):
    """Sums of large products of one sign leave what float32 adds up exactly behind."""
    torch.manual_seed(0)
    x = torch.randint(110, 128, (4, rows_in), dtype=INT8)
    weight = torch.randint(-128, -110, (rows_in, 8), dtype=INT8)
    assert torch.equal(integer_product(x, weight), (x.long() @ weight.long()).float())


def test_a_product_of_scaled_integers_is_the_product_of_their_values():
    torch.manual_seed(0)
    x, weights, counts = integers(7, 64), integers(3, 64, 5), torch.tensor([2, 0, 4])
    x_scale, weight_scale = torch.rand(7), torch.rand(3, 5)
    y = quant_grouped_matmul(x, x_scale, weights, weight_scale, counts, F32)
    real_x = x.double() * x_scale[:, None]
    real_weights = weights.double() * weight_scale[:, None]
    for rows, expert in ((slice(0, 2), 0), (slice(2, 6), 2)):
        torch.testing.assert_close(
            y[rows].double(), real_x[rows] @ real_weights[expert], rtol=1e-6, atol=1e-3
        )
        alone = quant_matmul(x[rows], x_scale[rows], weights[expert], weight_scale[expert], F32)
        assert torch.equal(y[rows], alone)


def both(name: str, *arguments):
    operator = OPS[name]
    return operator.npu(*arguments), operator.reference(*arguments)


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("tokens", [0, 5])
def test_npu_calls_that_quantise(dtype, tokens):
    """The NPU rounds to 16 bits between two operators: a step of INT8 is wider than that."""
    torch.manual_seed(0)
    x, residual, weight = (torch.randn(n, 64).to(dtype) for n in (tokens, tokens, 1))
    counts = torch.tensor([tokens, 0])
    ulp = 2**-8 if dtype == BF16 else 2**-11
    for name, *arguments in (
        ("dynamic_quant", x),
        ("rms_norm_quant", x, weight[0], 1e-6),
        ("add_rms_norm_quant", x, residual, weight[0], 1e-6),
        ("swiglu_quant", x, counts),
    ):
        got, want = both(name, *arguments)
        assert [(t.dtype, t.shape) for t in got] == [(t.dtype, t.shape) for t in want], name
        torch.testing.assert_close(got[1], want[1], rtol=ulp, atol=0)
        assert int((got[0].int() - want[0].int()).abs().sum(1).max() if tokens else 0) <= 8, name
        if name == "dynamic_quant":
            assert torch.equal(got[0], want[0])
        for mine, theirs in zip(got[2:], want[2:]):
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_npu_calls_of_products(dtype):
    torch.manual_seed(0)
    x, weights, counts = integers(9, 64), integers(3, 64, 32), torch.tensor([4, 0, 3])
    x_scale, weight_scale = torch.rand(9) / 100, torch.rand(3, 32)
    got, want = both("quant_grouped_matmul", x, x_scale, weights, weight_scale, counts, dtype)
    tolerance = getattr(quant_grouped_matmul.spec.tolerance, str(dtype).removeprefix("torch."))
    torch.testing.assert_close(got[:7], want[:7], rtol=tolerance, atol=0)
    got, want = both("quant_matmul", x, x_scale, weights[0], weight_scale[0], dtype)
    torch.testing.assert_close(got, want, rtol=tolerance, atol=0)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("rms_norm_quant", (torch.zeros(1, 8), torch.zeros(8), 1e-6), "dtype is torch.float32"),
        (
            "add_rms_norm_quant",
            (torch.zeros(1, 8), torch.zeros(1, 8), torch.zeros(8), 1e-6),
            "dtype is torch.float32, allowed is one of torch.bfloat16, torch.float16",
        ),
        ("swiglu_quant", (torch.zeros(1, 8), torch.tensor([1])), "dtype is torch.float32"),
        (
            "quant_matmul",
            (integers(1, 8), torch.ones(1), torch.zeros(8, 65536, dtype=INT8), torch.ones(1), BF16),
            "row elements is 65536, allowed is at most 65535",
        ),
        (
            "quant_grouped_matmul",
            (
                integers(1, 8),
                torch.ones(1),
                torch.zeros(1025, 8, 8, dtype=INT8),
                torch.ones(1025, 8),
                torch.zeros(1025, dtype=torch.int64),
                BF16,
            ),
            "experts is 1025, allowed is at most 1024",
        ),
    ],
)
def test_npu_limits(name, arguments, message):
    with pytest.raises(OperatorError, match=f"{name} on npu: {message}"):
        OPS[name].npu(*arguments)


def test_wrong_arguments():
    good = integers(4, 8), torch.ones(4), integers(2, 8, 8), torch.ones(2, 8)
    with pytest.raises(OperatorError, match="add up to at most 4 rows, got a sum of 5"):
        quant_grouped_matmul(*good, torch.tensor([5, 0]), F32)
    with pytest.raises(OperatorError, match="must not be negative"):
        quant_grouped_matmul(*good, torch.tensor([5, -1]), F32)
    with pytest.raises(OperatorError, match="x must be int8, got float32"):
        quant_grouped_matmul(torch.zeros(4, 8), *good[1:], torch.tensor([1, 1]), F32)
    with pytest.raises(OperatorError, match=r"swiglu_quant: x axis 1 must be even .* got 7"):
        swiglu_quant(torch.zeros(2, 7), torch.tensor([2]))
    with pytest.raises(OperatorError, match="swiglu_quant: tokens_per_expert .* sum of 3"):
        swiglu_quant(torch.zeros(2, 8), torch.tensor([3]))
