"""Product of each expert's INT8 rows with that expert's INT8 weight, dequantised."""

import torch

from sglang_ascend.native import int8
from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3, TINY_DEEPSEEK, MlaModel
from sglang_ascend.ops.quant_matmul import reference as product
from sglang_ascend.ops.spec import (
    FLOATS,
    HALVES,
    ContractCase,
    NpuLimit,
    Operator,
    OperatorError,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)

_DOC = "aclnnGroupedMatmulV5"

SPEC = OperatorSpec(
    name="quant_grouped_matmul",
    summary="Consecutive groups of rows: quant_matmul with the weight of their expert.",
    source="torch_npu npu_grouped_matmul with scale and per_token_scale",
    inputs={
        "x": TensorSpec(("rows", "in"), (torch.int8,)),
        "x_scale": TensorSpec(("rows",), (torch.float32,)),
        "weights": TensorSpec(("experts", "in", "out"), (torch.int8,)),
        "weight_scale": TensorSpec(("experts", "out"), (torch.float32,)),
        "tokens_per_expert": TensorSpec(("experts",), (torch.int64,)),
    },
    outputs={"y": TensorSpec(("rows", "out"), FLOATS)},
    npu_operators=("npu::npu_grouped_matmul",),
    npu_limits={
        "dtype": NpuLimit(_DOC, allowed=HALVES),
        "experts": NpuLimit(_DOC, maximum=1024),
        "row elements": NpuLimit(_DOC, maximum=65535),
    },
    tolerance=Tolerance(
        "the integer sum is exact; two float32 products in either order, and one rounding of the"
        " result to a 16-bit dtype",
        float32=1e-6,
        bfloat16=2**-7,
        float16=2**-10,
    ),
    values=lambda arguments: check_counts(
        SPEC.name, arguments["tokens_per_expert"], arguments["x"].shape[0]
    ),
)


def check_counts(operator: str, tokens_per_expert: torch.Tensor, rows: int) -> None:
    """Raise `OperatorError` unless tokens_per_expert describes at most `rows` rows."""
    total = int(tokens_per_expert.sum())
    if total > rows or (tokens_per_expert.numel() and int(tokens_per_expert.min()) < 0):
        raise OperatorError(
            f"{operator}: tokens_per_expert must not be negative and add up to at most {rows} rows,"
            f" got a sum of {total}"
        )


def reference(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    weights: torch.Tensor,
    weight_scale: torch.Tensor,
    tokens_per_expert: torch.Tensor,
    dtype: torch.dtype,
) -> torch.Tensor:
    """x [rows, in] int8 sorted by expert, x_scale [rows], weights [experts, in, out] int8.

    weight_scale [experts, out] float32, tokens_per_expert [experts] int64. Returns y [rows, out] in
    `dtype`. Rows behind the sum of tokens_per_expert are neither read nor meaningful in the result.
    """
    y = x.new_zeros(x.shape[0], weights.shape[2], dtype=dtype)
    start = 0
    for expert, count in enumerate(tokens_per_expert.tolist()):
        if count:
            rows = slice(start, start + count)
            y[rows] = product(x[rows], x_scale[rows], weights[expert], weight_scale[expert], dtype)
        start += count
    return y


def host(x, x_scale, weights, weight_scale, tokens_per_expert, dtype):
    return int8.grouped_matmul(x, x_scale, weights, weight_scale, tokens_per_expert, dtype)


def check_npu_limits(dtype: torch.dtype, experts: int, rows_in: int, rows_out: int) -> None:
    SPEC.require_npu("dtype", dtype)
    SPEC.require_npu("experts", experts)
    SPEC.require_npu("row elements", rows_in)
    SPEC.require_npu("row elements", rows_out)


def npu(x, x_scale, weights, weight_scale, tokens_per_expert, dtype):
    """weights may be in FRACTAL_NZ (`npu_format.to_fractal_nz`), which is read faster."""
    check_npu_limits(dtype, *weights.shape)
    return torch.ops.npu.npu_grouped_matmul(
        [x],
        [weights],
        scale=[weight_scale],
        per_token_scale=[x_scale],
        group_list=tokens_per_expert,
        split_item=3,
        group_type=0,
        group_list_type=1,
        output_dtype=dtype,
    )[0]


def _case(label: str, model: MlaModel, rows: int, experts: int) -> ContractCase:
    def build(device, dtype):
        def tensor(*shape, dtype):
            return torch.zeros(*shape, dtype=dtype, device=device)

        return {
            "x": tensor(rows, model.hidden, dtype=torch.int8),
            "x_scale": tensor(rows, dtype=torch.float32),
            "weights": tensor(experts, model.hidden, 2 * model.inter, dtype=torch.int8),
            "weight_scale": tensor(experts, 2 * model.inter, dtype=torch.float32),
            "tokens_per_expert": tensor(experts, dtype=torch.int64),
            "dtype": dtype,
        }

    return ContractCase(label, build)


CONTRACT = (
    _case("tiny-deepseek-v3 decode", TINY_DEEPSEEK, 32, 16),
    _case("DeepSeek-V3 prefill, EP 32", DEEPSEEK_V3, 4096, 8),
)

quant_grouped_matmul = Operator(SPEC, reference, npu, CONTRACT, host)
