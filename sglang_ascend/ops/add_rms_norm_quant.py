"""Residual addition and root-mean-square normalisation that end in INT8 rows."""

import torch

from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3
from sglang_ascend.ops.rms_norm_quant import reference as normalise_and_quantise
from sglang_ascend.ops.spec import (
    FLOATS,
    HALVES,
    ContractCase,
    NpuLimit,
    Operator,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)

SPEC = OperatorSpec(
    name="add_rms_norm_quant",
    summary=(
        "new_residual = x + residual; q, scale = dynamic_quant(rms_norm(new_residual)), with the"
        " sum and the norm unrounded."
    ),
    source="torch_npu npu_add_rms_norm_dynamic_quant",
    inputs={
        "x": TensorSpec(("tokens", "hidden"), FLOATS),
        "residual": TensorSpec(("tokens", "hidden"), like="x"),
        "weight": TensorSpec(("hidden",), like="x"),
    },
    outputs={
        "q": TensorSpec(("tokens", "hidden"), (torch.int8,)),
        "scale": TensorSpec(("tokens",), (torch.float32,)),
        "new_residual": TensorSpec(("tokens", "hidden"), like="x"),
    },
    npu_operators=("npu::npu_add_rms_norm_dynamic_quant",),
    npu_limits={"dtype": NpuLimit("aclnnAddRmsNormDynamicQuant", allowed=HALVES)},
    tolerance=Tolerance(
        "a quotient near a half may round to either side; float32 sums in another order, and one"
        " rounding where the NPU rounds the sum before it normalises",
        float32=2**-7,
        bfloat16=2**-8,
        float16=2**-11,
    ),
)


def reference(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x, residual [tokens, hidden], weight [hidden] -> (q, scale, new_residual).

    q [tokens, hidden] int8 and scale [tokens] float32 as in `rms_norm_quant`; new_residual
    [tokens, hidden] in the dtype of x.
    """
    total = x.float() + residual.float()
    return *normalise_and_quantise(total, weight, eps), total.to(x.dtype)


def npu(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    check_npu_limits(x.dtype)
    q, _, new_residual, scale, _ = torch.ops.npu.npu_add_rms_norm_dynamic_quant(
        x, residual, weight, epsilon=eps, output_mask=[True, False]
    )
    return q, scale, new_residual


def check_npu_limits(dtype: torch.dtype) -> None:
    SPEC.require_npu("dtype", dtype)


def _case(label: str, tokens: int) -> ContractCase:
    def build(device, dtype):
        rows = torch.empty(tokens, DEEPSEEK_V3.hidden, dtype=dtype, device=device)
        weight = torch.empty(DEEPSEEK_V3.hidden, dtype=dtype, device=device)
        return {"x": rows, "residual": torch.empty_like(rows), "weight": weight, "eps": 1e-6}

    return ContractCase(label, build)


CONTRACT = (_case("DeepSeek-V3 decode", 64), _case("DeepSeek-V3 prefill", 4096))

add_rms_norm_quant = Operator(SPEC, reference, npu, CONTRACT)
