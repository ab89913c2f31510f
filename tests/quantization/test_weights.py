"""INT8 weights, and the operators that multiply them, against integers of 32 and 64 bits."""

from __future__ import annotations

import pytest
import torch

from sglang_ascend.deploy.int8_layers import MAX_IN
from sglang_ascend.errors import ConfigError
from sglang_ascend.moe.experts import run_experts
from sglang_ascend.ops.dynamic_quant import dynamic_quant
from sglang_ascend.ops.quant_grouped_matmul import quant_grouped_matmul
from sglang_ascend.ops.quant_matmul import quant_matmul
from sglang_ascend.quantization.weights import (
    dequantise_weight,
    prepare_weight,
    quantise_weight,
)
from tests.support.int8_reference import integer_linear, quantise_rows

INT8 = torch.int8


def prepared(weight: torch.Tensor) -> torch.nn.Parameter:
    """weight [..., out, in] int8 as a layer keeps it: [..., in, out], made ready."""
    view = weight.transpose(-1, -2)
    return prepare_weight(torch.nn.Parameter(view, requires_grad=False))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_half_a_step_at_most_and_the_largest_value_whole(dtype):
    torch.manual_seed(0)
    weight = torch.randn(40, 96).mul(torch.logspace(-4, 1, 40)[:, None]).to(dtype)
    weight[3] = 0
    q, scale = quantise_weight(weight)
    assert (q.dtype, q.shape, scale.dtype, scale.shape) == (INT8, (40, 96), torch.float32, (40, 1))
    error = (dequantise_weight(q, scale) - weight.float()).abs()
    assert bool((error <= scale * (0.5 + 1e-4)).all())
    peaks = q.int().abs().amax(1)
    assert int(peaks[3]) == 0 and bool((peaks[torch.arange(40) != 3] == 127).all())
    # Independent of the rows beside it: SGLang joins projections before or after.
    assert torch.equal(quantise_weight(weight[7:9])[0], q[7:9])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_is_refused(value):
    weight = torch.ones(2, 3)
    weight[1, 2] = value
    with pytest.raises(ConfigError, match="holds NaN or infinity"):
        quantise_weight(weight)


def extremes(kind: str, rows: int, columns: int) -> torch.Tensor:
    """All INT8 values at an end of the range, where 16-bit or saturating sums would show."""
    if kind == "random":
        return torch.randint(-128, 128, (rows, columns), dtype=INT8)
    if kind == "alternating":
        signs = 1 - 2 * (torch.arange(columns) % 2)
        return (signs * 127).to(INT8).expand(rows, columns).contiguous()
    return torch.full((rows, columns), int(kind), dtype=INT8)


@pytest.mark.parametrize("inner", [1, 31, 576, 1536, 7168, 18432])
@pytest.mark.parametrize("weight_kind", ["-128", "127", "-127", "alternating", "random"])
@pytest.mark.parametrize("x_kind", ["127", "-127", "alternating", "random"])
def test_products_equal_64_bit_integers(inner, weight_kind, x_kind):
    torch.manual_seed(0)
    x, weight = extremes(x_kind, 3, inner), extremes(weight_kind, 5, inner)
    x_scale, weight_scale = torch.rand(3), torch.rand(5)
    total = x.long() @ weight.long().t()
    assert int(total.abs().max()) < 2**31  # what an INT32 accumulator holds
    y = quant_matmul(x, x_scale, prepared(weight), weight_scale, torch.float32)
    expected = total.float() * x_scale[:, None] * weight_scale
    torch.testing.assert_close(y, expected, rtol=1e-6, atol=0)
    # With scales of one nothing is left to rounding but the integer itself.
    ones = quant_matmul(x, torch.ones(3), prepared(weight), torch.ones(5), torch.float32)
    assert torch.equal(ones, total.float())


def test_the_longest_sum_that_is_accepted_fits_32_bits():
    assert MAX_IN * 127 * 128 < 2**31 <= (MAX_IN + 1) * 127 * 128


@pytest.mark.parametrize("inner", [64, 18432])
def test_grouped_products_equal_64_bit_integers(inner):
    torch.manual_seed(0)
    weights = torch.stack([extremes(kind, 4, inner) for kind in ("-128", "random", "127")])
    x = torch.cat([extremes(kind, 2, inner) for kind in ("127", "-127", "random")])
    counts = torch.tensor([3, 0, 2])
    y = quant_grouped_matmul(
        x, torch.ones(6), prepared(weights), torch.ones(3, 4), counts, torch.float32
    )
    assert torch.equal(y[:3], (x[:3].long() @ weights[0].long().t()).float())
    assert torch.equal(y[3:5], (x[3:5].long() @ weights[2].long().t()).float())


def test_a_layer_equals_the_definition():
    """`dynamic_quant` and `quant_matmul` together, against int32 sums written independently."""
    torch.manual_seed(0)
    x, weight = torch.randn(9, 1536) * torch.logspace(-3, 2, 9)[:, None], torch.randn(11, 1536)
    q, scale = dynamic_quant(x)
    w, w_scale = quantise_weight(weight)
    y = quant_matmul(q, scale, prepared(w), w_scale.flatten(), torch.float32)
    expected = integer_linear(x, *quantise_rows(weight))
    torch.testing.assert_close(y, expected, rtol=1e-6, atol=0)


class Layer:
    """What `run_experts` reads of SGLang's layer."""

    def __init__(self, gate_up: torch.Tensor, down: torch.Tensor) -> None:
        for name, weights in (("w13", gate_up), ("w2", down)):
            parts = [quantise_weight(weight) for weight in weights]
            setattr(self, f"{name}_weight", prepared(torch.stack([q for q, _ in parts])))
            setattr(self, f"{name}_weight_scale", torch.stack([s.flatten() for _, s in parts]))


def test_experts_equal_the_definition():
    torch.manual_seed(0)
    gate_up, down = torch.randn(3, 2 * 40, 64), torch.randn(3, 64, 40)
    rows, counts = torch.randn(8, 64), torch.tensor([5, 0, 2])
    out = run_experts(Layer(gate_up, down), rows, counts)
    for expert, part in ((0, slice(0, 5)), (2, slice(5, 7))):
        gate, up = integer_linear(rows[part], *quantise_rows(gate_up[expert])).chunk(2, dim=-1)
        middle = torch.nn.functional.silu(gate) * up
        expected = integer_linear(middle, *quantise_rows(down[expert]))
        torch.testing.assert_close(out[part], expected, rtol=1e-5, atol=1e-5)
