"""Symmetric INT8 quantisation of each row, with one float32 scale a row."""

import torch

from sglang_ascend.native import rows
from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3, TINY_DEEPSEEK
from sglang_ascend.ops.spec import (
    FLOATS,
    ContractCase,
    NpuLimit,
    Operator,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)

SPEC = OperatorSpec(
    name="dynamic_quant",
    summary="scale = max|x| / 127 of the row; q = x / scale rounded to the nearest integer.",
    source="torch_npu npu_dynamic_quant, per token, symmetric",
    inputs={"x": TensorSpec(("tokens", "hidden"), FLOATS)},
    outputs={
        "q": TensorSpec(("tokens", "hidden"), (torch.int8,)),
        "scale": TensorSpec(("tokens",), (torch.float32,)),
    },
    npu_operators=("npu::npu_dynamic_quant",),
    npu_limits={
        "dtype": NpuLimit("aclnnDynamicQuant", allowed=(torch.bfloat16, torch.float16)),
    },
    tolerance=Tolerance("a quotient near a half may round to either side"),
)


def reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x [tokens, hidden] -> q [tokens, hidden] int8 in -127..127 and scale [tokens] float32.

    |x - q * scale| <= scale / 2 in each element, up to a float32 rounding. A row of zeros has
    scale 0 and q 0.
    """
    x = x.float()
    scale = x.abs().amax(1) / 127.0
    q = (x / torch.where(scale == 0, 1.0, scale).unsqueeze(1)).round_()
    return q.clamp_(-127, 127).to(torch.int8), scale


def host(x: torch.Tensor):
    return rows.dynamic_quant(x)


def npu(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    check_npu_limits(x.dtype)
    return torch.ops.npu.npu_dynamic_quant(x)


def check_npu_limits(dtype: torch.dtype) -> None:
    SPEC.require_npu("dtype", dtype)


def _case(label: str, tokens: int, hidden: int) -> ContractCase:
    def build(device, dtype):
        return {"x": torch.empty(tokens, hidden, dtype=dtype, device=device)}

    return ContractCase(label, build)


CONTRACT = (
    _case("tiny-deepseek-v3 decode", 8, TINY_DEEPSEEK.hidden),
    _case("DeepSeek-V3 decode, 81 tokens a card", 81, DEEPSEEK_V3.hidden),
)

dynamic_quant = Operator(SPEC, reference, npu, CONTRACT, host)
