"""Root-mean-square normalisation."""

import torch

from sglang_ascend.native import rows
from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3, SMOLLM2_135M
from sglang_ascend.ops.spec import (
    FLOATS,
    ContractCase,
    Operator,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)

SPEC = OperatorSpec(
    name="rms_norm",
    summary="y = x / sqrt(mean(x^2) + eps) * weight, computed in float32.",
    source="arXiv 1910.07467; torch_npu npu_rms_norm",
    inputs={
        "x": TensorSpec(("tokens", "hidden"), FLOATS),
        "weight": TensorSpec(("hidden",), like="x"),
    },
    outputs={"y": TensorSpec(("tokens", "hidden"), like="x")},
    npu_operators=("npu::npu_rms_norm",),
    tolerance=Tolerance(
        "float32 sums in another order; one rounding of the result to a 16-bit dtype",
        float32=1e-6,
        bfloat16=2**-7,
        float16=2**-10,
    ),
)


def normalise(
    x: torch.Tensor, weight: torch.Tensor, eps: float, dtype: torch.dtype
) -> torch.Tensor:
    """RMS-normalise the last axis of `x` (any dtype) in float32; return `dtype`."""
    x = x.float()
    inverse = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return (x * inverse).mul_(weight).to(dtype)


def reference(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x [tokens, hidden], weight [hidden] -> y [tokens, hidden] in the dtype of x."""
    return normalise(x, weight, eps, x.dtype)


def host(x: torch.Tensor, weight: torch.Tensor, eps: float):
    return rows.rms_norm(x, weight, eps)


def npu(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.ops.npu.npu_rms_norm(x, weight, eps)[0]


def _case(label: str, tokens: int, hidden: int) -> ContractCase:
    def build(device, dtype):
        return {
            "x": torch.empty(tokens, hidden, dtype=dtype, device=device),
            "weight": torch.empty(hidden, dtype=dtype, device=device),
            "eps": 1e-6,
        }

    return ContractCase(label, build)


CONTRACT = (
    _case("SmolLM2-135M decode", 8, SMOLLM2_135M.hidden),
    _case("DeepSeek-V3 prefill", 4096, DEEPSEEK_V3.hidden),
)

rms_norm = Operator(SPEC, reference, npu, CONTRACT, host)
