"""Residual addition followed by root-mean-square normalisation."""

import torch

from sglang_ascend.native import rows
from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3, SMOLLM2_135M
from sglang_ascend.ops.rms_norm import normalise
from sglang_ascend.ops.spec import (
    FLOATS,
    ContractCase,
    Operator,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)

SPEC = OperatorSpec(
    name="add_rms_norm",
    summary=(
        "new_residual = x + residual; y = rms_norm(new_residual); the sum is normalised unrounded."
    ),
    source="torch_npu npu_add_rms_norm",
    inputs={
        "x": TensorSpec(("tokens", "hidden"), FLOATS),
        "residual": TensorSpec(("tokens", "hidden"), like="x"),
        "weight": TensorSpec(("hidden",), like="x"),
    },
    outputs={
        "y": TensorSpec(("tokens", "hidden"), like="x"),
        "new_residual": TensorSpec(("tokens", "hidden"), like="x"),
    },
    npu_operators=("npu::npu_add_rms_norm",),
    tolerance=Tolerance(
        "float32 sums in another order; one rounding of the result to a 16-bit dtype, and one more"
        " where the NPU rounds the sum before it normalises",
        float32=1e-6,
        bfloat16=2**-6,
        float16=2**-9,
    ),
)


def reference(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """x, residual [tokens, hidden], weight [hidden] -> (y, new_residual), in the dtype of x."""
    total = x.float() + residual.float()
    return normalise(total, weight, eps, x.dtype), total.to(x.dtype)


def host(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float):
    return rows.rms_norm(x, weight, eps, residual)


def npu(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    y, _, new_residual = torch.ops.npu.npu_add_rms_norm(x, residual, weight, eps)
    return y, new_residual


def _case(label: str, tokens: int, hidden: int) -> ContractCase:
    def build(device, dtype):
        rows = torch.empty(tokens, hidden, dtype=dtype, device=device)
        weight = torch.empty(hidden, dtype=dtype, device=device)
        return {"x": rows, "residual": torch.empty_like(rows), "weight": weight, "eps": 1e-6}

    return ContractCase(label, build)


CONTRACT = (
    _case("SmolLM2-135M decode", 8, SMOLLM2_135M.hidden),
    _case("DeepSeek-V3 prefill", 4096, DEEPSEEK_V3.hidden),
)

add_rms_norm = Operator(SPEC, reference, npu, CONTRACT, host)
