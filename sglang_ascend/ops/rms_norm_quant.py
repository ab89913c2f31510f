"""Root-mean-square normalisation that ends in INT8 rows, for a quantised product behind it."""

import torch

from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3
from sglang_ascend.ops.dynamic_quant import reference as quantise
from sglang_ascend.ops.rms_norm import normalise
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
    name="rms_norm_quant",
    summary="q, scale = dynamic_quant(rms_norm(x)), with the norm unrounded.",
    source="arXiv 1910.07467; torch_npu npu_rms_norm, npu_dynamic_quant",
    inputs={
        "x": TensorSpec(("tokens", "hidden"), FLOATS),
        "weight": TensorSpec(("hidden",), like="x"),
    },
    outputs={
        "q": TensorSpec(("tokens", "hidden"), (torch.int8,)),
        "scale": TensorSpec(("tokens",), (torch.float32,)),
    },
    npu_operators=("npu::npu_rms_norm", "npu::npu_dynamic_quant"),
    npu_limits={"dtype": NpuLimit("aclnnDynamicQuant", allowed=HALVES)},
    tolerance=Tolerance(
        "a quotient near a half may round to either side; the NPU rounds the norm to the dtype of x"
        " before it quantises",
        float32=2**-8,
    ),
)


def reference(
    x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """x [tokens, hidden], weight [hidden] -> q [tokens, hidden] int8, scale [tokens] float32.

    scale = max|y| / 127 of the row and q = y / scale rounded half to even, y = rms_norm(x) in
    float32; a row of zeros has scale 0 and q 0. A row with an infinity or NaN has a scale of NaN.
    """
    return quantise(normalise(x, weight, eps, torch.float32))


def npu(x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    check_npu_limits(x.dtype)
    return torch.ops.npu.npu_dynamic_quant(torch.ops.npu.npu_rms_norm(x, weight, eps)[0])


def check_npu_limits(dtype: torch.dtype) -> None:
    SPEC.require_npu("dtype", dtype)


def _case(label: str, tokens: int, hidden: int) -> ContractCase:
    def build(device, dtype):
        return {
            "x": torch.empty(tokens, hidden, dtype=dtype, device=device),
            "weight": torch.empty(hidden, dtype=dtype, device=device),
            "eps": 1e-6,
        }

    return ContractCase(label, build)


CONTRACT = (
    _case("DeepSeek-V3 decode, query latents", 64, DEEPSEEK_V3.q_lora),
    _case("DeepSeek-V3 prefill", 4096, DEEPSEEK_V3.hidden),
)

rms_norm_quant = Operator(SPEC, reference, npu, CONTRACT)
