"""SwiGLU activation of a fused gate-and-up projection."""

import torch
import torch.nn.functional as F

from sglang_ascend.native import rows
from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3, SMOLLM2_135M, TINY_DEEPSEEK
from sglang_ascend.ops.spec import (
    FLOATS,
    ContractCase,
    Operator,
    OperatorError,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)

SPEC = OperatorSpec(
    name="swiglu",
    summary="silu(first half) * second half along the last axis.",
    source="arXiv 2002.05202; torch_npu npu_swiglu",
    inputs={"x": TensorSpec(("tokens", "2*inter"), FLOATS)},
    outputs={"y": TensorSpec(("tokens", "inter"), like="x")},
    npu_operators=("npu::npu_swiglu",),
    tolerance=Tolerance(
        "float32 exponentials of another library; the 16-bit reference rounds silu and the product",
        float32=1e-6,
        bfloat16=2**-6,
        float16=2**-9,
    ),
    values=lambda arguments: check_width(arguments["x"].shape[1]),
)


def check_width(width: int) -> None:
    if width % 2:
        raise OperatorError(f"{SPEC.name}: x axis 1 must be even (gate and up), got {width}")


def reference(x: torch.Tensor) -> torch.Tensor:
    """x [tokens, 2*inter] -> y [tokens, inter] in the dtype of x."""
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)


def host(x: torch.Tensor):
    return rows.swiglu(x)


def npu(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.npu.npu_swiglu(x, dim=-1)


def _case(label: str, tokens: int, inter: int) -> ContractCase:
    def build(device, dtype):
        return {"x": torch.empty(tokens, 2 * inter, dtype=dtype, device=device)}

    return ContractCase(label, build)


CONTRACT = (
    _case("SmolLM2-135M decode", 8, SMOLLM2_135M.inter),
    _case("tiny-deepseek-v3 expert", 64, TINY_DEEPSEEK.inter),
    _case("DeepSeek-V3 expert prefill", 4096, DEEPSEEK_V3.inter),
)

swiglu = Operator(SPEC, reference, npu, CONTRACT, host)
