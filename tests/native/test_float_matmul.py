"""Products of float32 rows, as exact as torch's own, from one row to many."""

import pytest
import torch

from sglang_ascend.native import matmul

ROWS = (1, 4, 7, 16, 33, 48, 100)


def worst(result, x, weight, bias):
    """Largest error against float64, in units of sum |x| |w|."""
    exact = x.double() @ weight.double().t() + bias
    scale = x.double().abs() @ weight.double().abs().t()
    return float(((result.double() - exact).abs() / scale).max())


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "quantised"])
@pytest.mark.parametrize("width, outs", [(1, 1), (32, 32), (65, 33), (576, 200), (1536, 70)])
def test_error_is_that_of_float32(width, outs, kind):
    """Weights of few bits take other ways with AMX than those of 24."""
    torch.manual_seed(width)
    weight, bias = torch.randn(outs, width), torch.randn(outs)
    if kind == "bfloat16":
        weight = weight.bfloat16().float()
    if kind == "quantised":
        weight = (weight * 7).round() * 0.0123291015625  # of four bits by eleven
    for rows in ROWS:
        x = torch.randn(rows, width + 3)[:, :width]
        result = matmul.linear(x, weight, bias)
        limit = max(2 * worst(torch.nn.functional.linear(x, weight, bias), x, weight, bias), 2**-22)
        assert worst(result, x, weight, bias) <= limit


def test_very_large_and_very_small_numbers_keep_their_places():
    x = torch.tensor([[1e30, 1e-30, 3.0]]).repeat(64, 1)
    weight = torch.tensor([[1e-30, 0.0, 0.0], [0.0, 1e30, 0.0], [1e8, 0.0, 1.0]])
    result = matmul.linear(x, weight)
    torch.testing.assert_close(result, torch.tensor([1.0, 1.0, 1e38]).expand(64, 3))


def test_one_row_of_a_batch_does_not_depend_on_the_others():
    x, weight = torch.randn(80, 576), torch.randn(96, 576)
    whole = matmul.linear(x, weight)
    changed = x.clone()
    changed[0] = 1e6
    assert torch.equal(matmul.linear(changed, weight)[1:], whole[1:])
    assert torch.equal(matmul.linear(x[40:], weight), whole[40:])


def test_many_rows_with_weights_at_a_stride():
    weight, x = torch.randn(40, 130)[:, :128], torch.randn(700, 128)
    result = matmul.linear(x, weight)
    torch.testing.assert_close(result, x @ weight.t(), atol=1e-4, rtol=1e-5)
