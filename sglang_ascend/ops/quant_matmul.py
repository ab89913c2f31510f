"""Product of INT8 rows and an INT8 weight, dequantised by token and by output channel."""

import torch

from sglang_ascend.native import int8
from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3
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

_DOC = "aclnnQuantMatmulV5"

SPEC = OperatorSpec(
    name="quant_matmul",
    summary="y = (x @ weight) * x_scale of the token * weight_scale of the channel.",
    source="torch_npu npu_quant_matmul with pertoken_scale",
    inputs={
        "x": TensorSpec(("tokens", "in"), (torch.int8,)),
        "x_scale": TensorSpec(("tokens",), (torch.float32,)),
        "weight": TensorSpec(("in", "out"), (torch.int8,)),
        "weight_scale": TensorSpec(("out",), (torch.float32,)),
    },
    outputs={"y": TensorSpec(("tokens", "out"), FLOATS)},
    npu_operators=("npu::npu_quant_matmul",),
    npu_limits={
        "dtype": NpuLimit(_DOC, allowed=HALVES),
        "row elements": NpuLimit(_DOC, maximum=65535),
    },
    tolerance=Tolerance(
        "the integer sum is exact; two float32 products in either order, and one rounding of the"
        " result to a 16-bit dtype",
        float32=1e-6,
        bfloat16=2**-7,
        float16=2**-10,
    ),
)


def integer_product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x [tokens, in] int8 @ weight [in, out] int8 -> [tokens, out] float32 of the exact sums.

    Sums of up to 2**24 / 128**2 = 1024 products are exact in float32; above that, in float64.
    """
    dtype = torch.float32 if x.shape[1] <= 1024 else torch.float64
    return (x.to(dtype) @ weight.to(dtype)).float()


def reference(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    dtype: torch.dtype,
) -> torch.Tensor:
    """x [tokens, in] int8, x_scale [tokens], weight [in, out] int8, weight_scale [out] float32.

    Returns y [tokens, out] in `dtype`. The sum over `in` is that of integers, without rounding.
    """
    y = integer_product(x, weight)
    return (y * x_scale.unsqueeze(1) * weight_scale).to(dtype)


def host(x, x_scale, weight, weight_scale, dtype):
    return int8.matmul(x, x_scale, weight, weight_scale, dtype)


def check_npu_limits(dtype: torch.dtype, rows_in: int, rows_out: int) -> None:
    SPEC.require_npu("dtype", dtype)
    SPEC.require_npu("row elements", rows_in)
    SPEC.require_npu("row elements", rows_out)


def npu(x, x_scale, weight, weight_scale, dtype):
    check_npu_limits(dtype, *weight.shape)
    return torch.ops.npu.npu_quant_matmul(
        x, weight, weight_scale, pertoken_scale=x_scale, output_dtype=dtype
    )


def _case(label: str, tokens: int, rows_in: int, rows_out: int) -> ContractCase:
    def build(device, dtype):
        return {
            "x": torch.empty(tokens, rows_in, dtype=torch.int8, device=device),
            "x_scale": torch.empty(tokens, device=device),
            "weight": torch.empty(rows_in, rows_out, dtype=torch.int8, device=device),
            "weight_scale": torch.empty(rows_out, device=device),
            "dtype": dtype,
        }

    return ContractCase(label, build)


_QUERY_WIDTH = DEEPSEEK_V3.heads * (DEEPSEEK_V3.nope + DEEPSEEK_V3.rope)
CONTRACT = (
    _case("DeepSeek-V3 decode, query up projection", 64, DEEPSEEK_V3.q_lora, _QUERY_WIDTH),
    _case("DeepSeek-V3 prefill, dense MLP", 4096, DEEPSEEK_V3.hidden, 2 * 18432),
)

quant_matmul = Operator(SPEC, reference, npu, CONTRACT, host)
