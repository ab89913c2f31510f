"""RMSNorm and SwiGLU against transformers' modules."""

import pytest
import torch
import torch.nn.functional as F
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from sglang_ascend.ops.add_rms_norm import add_rms_norm
from sglang_ascend.ops.rms_norm import rms_norm
from sglang_ascend.ops.swiglu import swiglu

# Products of the normalised value and the weight are rounded once here and twice in transformers.
# A native kernel adds in another order than torch; the reference itself differs in no bit.
ROUNDING = {torch.float32: 1e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}


def _module(hidden, dtype, eps) -> LlamaRMSNorm:
    module = LlamaRMSNorm(hidden, eps=eps).to(dtype)
    module.weight.data.copy_(torch.randn(hidden))
    return module


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("tokens", [0, 1, 7])
@pytest.mark.parametrize("hidden", [1, 576, 33])
def test_rms_norm_is_transformers(dtype, tokens, hidden):
    torch.manual_seed(0)
    module = _module(hidden, dtype, 1e-5)
    x = (torch.randn(hidden, tokens, dtype=dtype) * 10).t()
    expected = module(x)
    torch.testing.assert_close(
        rms_norm(x, module.weight.data, 1e-5), expected, rtol=ROUNDING[dtype], atol=0
    )


def test_rms_norm_leaves_its_input_alone():
    x = torch.randn(3, 8)
    before = x.clone()
    rms_norm(x, torch.full((8,), 2.0), 1e-6)
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("tokens", [0, 5])
def test_add_rms_norm(dtype, tokens):
    torch.manual_seed(0)
    module = _module(64, torch.float32, 1e-6)
    x, residual = torch.randn(2, tokens, 64, dtype=dtype)
    y, new_residual = add_rms_norm(x, residual, module.weight.data.to(dtype), 1e-6)
    total = x.float() + residual.float()
    assert torch.equal(new_residual, total.to(dtype))
    module.weight.data.copy_(module.weight.data.to(dtype).float())
    torch.testing.assert_close(y, module(total).to(dtype), rtol=ROUNDING[dtype], atol=0)


@pytest.mark.parametrize("tokens", [0, 1, 9])
def test_swiglu(tokens):
    torch.manual_seed(0)
    x = torch.randn(tokens, 12) * 20
    before = x.clone()
    assert torch.equal(swiglu(x), F.silu(x[:, :6]) * x[:, 6:])
    assert torch.equal(x, before)


def test_swiglu_of_a_transposed_view_at_the_ends_of_the_range():
    x = torch.tensor([[-1e4, 1e4, 0.0], [2.0, 2.0, 2.0]]).repeat(1, 2).t()
    expected = torch.tensor([[-0.0], [2e4]])
    gate_up = torch.tensor([[-1e4, 2.0], [1e4, 2.0]])
    assert torch.equal(swiglu(gate_up), expected)
    assert swiglu(x).shape == (6, 1)
