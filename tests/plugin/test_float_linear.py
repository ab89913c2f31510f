"""The linear layer of the reference device, from no row to many, whoever computes it."""

import pytest
import torch

from sglang_ascend.plugin import float_linear

BIAS = torch.linspace(-1, 1, 96)


@pytest.mark.parametrize("rows", [0, 1, 16, 48, 49, 300])
@pytest.mark.parametrize("bias", [None, BIAS])
def test_product_of_any_number_of_rows(rows, bias):
    torch.manual_seed(rows)
    weight = torch.randn(96, 70)[:, :64]
    for x in (torch.randn(rows, 64), torch.randn(rows, 80)[:, 16:], torch.randn(2, rows, 64)):
        result = float_linear.linear(x, weight, bias)
        exact = torch.nn.functional.linear(
            x.double(), weight.double(), None if bias is None else bias.double()
        )
        torch.testing.assert_close(result.double(), exact, atol=2e-5, rtol=1e-5)


def test_other_formats_stay_with_torch():
    x, weight = torch.randn(60, 64).bfloat16(), torch.randn(96, 64).bfloat16()
    assert torch.equal(float_linear.linear(x, weight), torch.nn.functional.linear(x, weight))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(RuntimeError):
        float_linear.linear(torch.randn(60, 5), torch.randn(96, 6))
