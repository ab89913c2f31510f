"""The INT8 product in every bit, up to the ends of its range."""

import pytest
import torch

from sglang_ascend.native import int8
from sglang_ascend.ops.quant_grouped_matmul import quant_grouped_matmul
from sglang_ascend.ops.quant_matmul import quant_matmul


def oracle(x, x_scale, weight, weight_scale):
    """Integer sums in 64 bits; then the two float32 products in the order of the operator."""
    sums = (x.long().unsqueeze(2) * weight.long().unsqueeze(0)).sum(1)
    assert int(sums.abs().max()) < 2**31
    return sums.float() * x_scale[:, None] * weight_scale


def integers(*shape):
    return torch.randint(-128, 128, shape, dtype=torch.int8)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 16, 17, 99])
@pytest.mark.parametrize("width, outs", [(1, 1), (7, 15), (64, 16), (65, 33), (130, 70)])
def test_product_is_that_of_integers(rows, width, outs):
    torch.manual_seed(rows * width)
    x, weight = integers(rows, width), integers(width, outs)
    x_scale, weight_scale = torch.rand(rows), torch.rand(outs)
    expected = oracle(x, x_scale, weight, weight_scale)
    packed = int8.pack(weight.clone())
    assert torch.equal(int8.matmul(x, x_scale, packed, weight_scale, torch.float32), expected)
    assert torch.equal(quant_matmul(x, x_scale, weight, weight_scale, torch.float32), expected)


@pytest.mark.parametrize("a, b", [(127, 127), (-128, -128), (-128, 127), (127, -128)])
@pytest.mark.parametrize("width", [2, 576, 18432, 131071])
def test_equal_extremes_do_not_saturate(a, b, width):
    """Two products of 8-bit extremes leave 16 bits, where AVX2's 8-bit multiply-add ends."""
    x = torch.full((5, width), a, dtype=torch.int8)
    weight = torch.full((width, 17), b, dtype=torch.int8)
    ones = torch.ones(17)
    result = int8.matmul(x, ones[:5], int8.pack(weight), ones, torch.float32)
    expected = torch.tensor(a * b * width, dtype=torch.int64).float()
    assert bool((result == expected).all())


def test_a_longer_sum_than_32_bits_hold_stays_with_the_reference():
    weight = torch.zeros(131072, 1, dtype=torch.int8)
    int8.pack(weight)
    x = torch.zeros(1, 131072, dtype=torch.int8)
    assert int8.matmul(x, torch.ones(1), weight, torch.ones(1), torch.float32) is NotImplemented


def test_a_packed_weight_keeps_shape_and_dtype_and_gives_up_its_elements():
    weight = torch.nn.Parameter(integers(64, 32), requires_grad=False)
    packed = int8.pack(weight)
    assert packed is weight and weight.shape == (64, 32) and weight.dtype == torch.int8
    assert weight.untyped_storage().nbytes() == 1
    int8.release(packed)
    x, ones = integers(1, 64), torch.ones(32)
    assert int8.matmul(x, ones[:1], packed, ones, torch.float32) is NotImplemented
    int8.release(packed)


@pytest.mark.parametrize("counts", [[3, 0, 9, 1], [0, 0, 0, 0], [0, 40, 0, 0]])
def test_grouped_product(counts):
    torch.manual_seed(1)
    x, weights = integers(sum(counts) + 2, 66), integers(4, 66, 18)
    x_scale, weight_scale = torch.rand(len(x)), torch.rand(4, 18)
    packed = int8.pack(weights.clone())
    result = quant_grouped_matmul(
        x, x_scale, packed, weight_scale, torch.tensor(counts), torch.float32
    )
    start = 0
    for expert, count in enumerate(counts):
        rows = slice(start, start + count)
        if count:
            expected = oracle(x[rows], x_scale[rows], weights[expert], weight_scale[expert])
            assert torch.equal(result[rows], expected)
        start += count


def test_transposed_weights_are_packed_by_their_values():
    stored = integers(12, 30)
    x, ones = integers(2, 30), torch.ones(12)
    expected = oracle(x, ones[:2], stored.t(), ones)
    packed = int8.pack(torch.nn.Parameter(stored.t(), requires_grad=False))
    assert torch.equal(int8.matmul(x, ones[:2], packed, ones, torch.float32), expected)
    half = int8.matmul(x, ones[:2], packed, ones, torch.bfloat16)
    assert torch.equal(half, expected.bfloat16())
