"""Matrix product of each expert's rows with that expert's weight."""

import torch
import torch.nn.functional as F

from sglang_ascend.native import matmul
from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3, TINY_DEEPSEEK, MlaModel
from sglang_ascend.ops.spec import (
    FLOATS,
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
    name="grouped_matmul",
    summary="Consecutive groups of rows of x times the weight of their expert.",
    source="torch_npu npu_grouped_matmul, group_type 0, split_item 3, group_list_type 1",
    inputs={
        "x": TensorSpec(("rows", "in"), FLOATS),
        "weights": TensorSpec(("experts", "in", "out"), like="x"),
        "tokens_per_expert": TensorSpec(("experts",), (torch.int64,)),
    },
    outputs={"y": TensorSpec(("rows", "out"), like="x")},
    npu_operators=("npu::npu_grouped_matmul",),
    npu_limits={
        "experts": NpuLimit(_DOC, maximum=1024),
        "row elements": NpuLimit(_DOC, maximum=65535),
    },
    tolerance=Tolerance(
        "float32 sums in another order; one rounding of the result to a 16-bit dtype",
        float32=2e-5,
        bfloat16=2**-7,
        float16=2**-10,
    ),
    values=lambda arguments: check_arguments(arguments),
)


def check_arguments(arguments) -> None:
    counts, rows = arguments["tokens_per_expert"], arguments["x"].shape[0]
    total = int(counts.sum())
    if total > rows or (counts.numel() and int(counts.min()) < 0):
        raise OperatorError(
            f"{SPEC.name}: tokens_per_expert must not be negative and add up to at most {rows}"
            " rows,"
            f" got a sum of {total}"
        )


def reference(
    x: torch.Tensor, weights: torch.Tensor, tokens_per_expert: torch.Tensor
) -> torch.Tensor:
    """x [rows, in] sorted by expert, weights [experts, in, out], tokens_per_expert [experts] int64.

    Returns y [rows, out]. An expert may have no rows. Rows behind the sum of tokens_per_expert are
    neither read nor meaningful in the result. A transposed view of weights stored as [experts, out,
    in] is as good as a contiguous tensor.
    """
    ends = tokens_per_expert.cumsum(0)
    total = int(ends[-1])
    y = x.new_zeros(x.shape[0], weights.shape[2])
    if total == 0:
        return y
    rows = x[:total]
    if _is_aligned(rows, weights):
        y[:total] = F.grouped_mm(rows, weights, offs=ends.int())
        return y
    start = 0
    for expert, end in enumerate(ends.tolist()):
        if end > start:
            torch.mm(rows[start:end], weights[expert], out=y[start:end])
        start = end
    return y


def host(x: torch.Tensor, weights: torch.Tensor, tokens_per_expert: torch.Tensor):
    return matmul.grouped_matmul(x, weights, tokens_per_expert)


def _is_aligned(*operands: torch.Tensor) -> bool:
    """Whether grouped_mm takes the operands: dense rows or columns, aligned to 16 bytes."""
    for operand in operands:
        unit = 16 // operand.element_size()
        *outer, row, column = operand.stride()
        dense = (column == 1 and row % unit == 0) or (row == 1 and column % unit == 0)
        if not dense or any(step % unit for step in outer) or operand.data_ptr() % 16:
            return False
    return True


def check_npu_limits(experts: int, rows_in: int, rows_out: int) -> None:
    SPEC.require_npu("experts", experts)
    SPEC.require_npu("row elements", rows_in)
    SPEC.require_npu("row elements", rows_out)


def npu(x, weights, tokens_per_expert):
    """weights may be in FRACTAL_NZ (`npu_format.to_fractal_nz`), which is read faster."""
    check_npu_limits(*weights.shape)
    return torch.ops.npu.npu_grouped_matmul(
        [x],
        [weights],
        group_list=tokens_per_expert,
        split_item=3,
        group_type=0,
        group_list_type=1,
    )[0]


def _case(label: str, model: MlaModel, rows: int, experts: int) -> ContractCase:
    def build(device, dtype):
        return {
            "x": torch.empty(rows, model.hidden, dtype=dtype, device=device),
            "weights": torch.empty(
                experts, model.hidden, 2 * model.inter, dtype=dtype, device=device
            ),
            "tokens_per_expert": torch.zeros(experts, dtype=torch.int64, device=device),
        }

    return ContractCase(label, build)


CONTRACT = (
    _case("tiny-deepseek-v3 decode", TINY_DEEPSEEK, 32, 16),
    _case("DeepSeek-V3 prefill, EP 32", DEEPSEEK_V3, 4096, 8),
)

grouped_matmul = Operator(SPEC, reference, npu, CONTRACT, host)
