"""Rows of tokens repeated per chosen expert and sorted by expert. Reference: `ops/moe_permute.py`.

`expert_order` says where each (token, choice) pair goes; `scatter_rows` brings its row there.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import triton.language as tl

from sglang_ascend.kernels.cores import vector_programs
from sglang_ascend.kernels.expert_order import order_pairs_launch
from sglang_ascend.kernels.launching import Backend, npu_backend
from sglang_ascend.kernels.rows import DENSE, HERE, choose_width, row_configs
from sglang_ascend.kernels.spec import KernelSpec, Work, ascend_kernel
from sglang_ascend.ops import moe_permute as operator
from sglang_ascend.ops.spec import NpuLimit, TensorSpec

_DTYPES = {torch.bfloat16: "bf16", torch.int8: "i8"}


# The operator's shapes; quantised rows are moved as well.
_SHAPES = replace(
    operator.SPEC,
    values=None,
    inputs={**operator.SPEC.inputs, "x": TensorSpec(("tokens", "hidden"), tuple(_DTYPES))},
)


@ascend_kernel
def scatter_rows(
    x_ptr,  # [tokens, hidden] T, rows x_stride elements apart
    row_index_ptr,  # [tokens * top_k] int32: row in `out` of a pair, negative if it has none
    out_ptr,  # [rows, hidden] T, output
    tokens,
    rows,
    top_k,
    hidden,
    x_stride,
    COLS: tl.constexpr,
):
    col = tl.arange(0, COLS)
    inside = col < hidden
    for token in range(tl.program_id(0), tokens, tl.num_programs(0)):
        pairs = row_index_ptr + token * top_k
        last = -1
        for choice in range(top_k):
            last = tl.maximum(last, tl.load(pairs + choice))
        # One read for all choices, and none for a token of other ranks.
        if last >= 0:
            x_row = x_ptr + token.to(tl.int64) * x_stride
            x = tl.load(x_row + col, mask=inside, other=0)
            for choice in range(top_k):
                row = tl.load(pairs + choice)
                if row >= 0:
                    if row < rows:
                        tl.store(out_ptr + row.to(tl.int64) * hidden + col, x, mask=inside)


def scatter_rows_launch(
    x: torch.Tensor, row_index: torch.Tensor, top_k: int, out: torch.Tensor, on: Backend
) -> None:
    """out[row_index[t * top_k + k]] = x[t] in place, for each index that is a row of `out`.

    x [tokens, hidden], rows strided, and out [rows, hidden], contiguous: bfloat16 or int8.
    row_index [tokens * top_k] int32. Raises `OperatorError` outside `SPEC.features`.
    """
    tokens, hidden = x.shape
    SPEC.require(on.device, dtype=x.dtype, hidden=hidden, element_stride=x.stride(1))
    on.launch(
        SPEC,
        choose_width(SPEC, on.target, hidden, _DTYPES[x.dtype]),
        (vector_programs(on.target, tokens),),
        x,
        row_index,
        out,
        tokens,
        out.shape[0],
        top_k,
        hidden,
        x.stride(0),
    )


def moe_permute_launch(
    x: torch.Tensor,
    ids: torch.Tensor,
    expert_start: int,
    expert_end: int,
    on: Backend | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x [tokens, hidden] bfloat16 or int8, rows strided; ids [tokens, top_k] int32 -> (sorted_x,
    row_index, tokens_per_expert) as the operator; rows of sorted_x without a pair are not written.

    Raises `OperatorError` outside the features of `scatter_rows` and `order_pairs`.
    """
    on = on or npu_backend(x)
    _SHAPES.check_inputs({"x": x, "ids": ids})
    operator.check_arguments({"expert_start": expert_start, "expert_end": expert_end})
    tokens, top_k = ids.shape
    experts = expert_end - expert_start
    row_index, counts = order_pairs_launch(ids, expert_start, experts, experts, 0, on)
    sorted_x = torch.empty(tokens * top_k, x.shape[1], dtype=x.dtype, device=x.device)
    scatter_rows_launch(x, row_index, top_k, sorted_x, on)
    return sorted_x, row_index, counts.long()


SPEC = KernelSpec(
    name="scatter_rows",
    kernel=scatter_rows,
    signature={
        "x_ptr": "*T",
        "row_index_ptr": "*i32",
        "out_ptr": "*T",
        "tokens": "i32",
        "rows": "i32",
        "top_k": "i32",
        "hidden": "i32",
        "x_stride": "i32",
    },
    configs=row_configs((2048, 8192), ("bf16", "i8")),
    launcher=moe_permute_launch,
    reference="moe_permute",
    features={
        "dtype": NpuLimit(HERE, allowed=tuple(_DTYPES)),
        "hidden": NpuLimit(HERE, maximum=8192),
        "element_stride": DENSE,
    },
    work=(
        Work("decode 64 x top 8, 7168 bf16", 0, 64 * (9 * 7168 * 2 + 8 * 4)),
        Work("prefill 4096 x top 8, 7168 int8", 0, 4096 * (9 * 7168 + 8 * 4)),
    ),
)
KERNELS = (SPEC,)
