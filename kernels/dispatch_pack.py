"""Rows of tokens sorted into one window a destination rank. Reference: `ops/dispatch_pack.py`.

An INT8 row takes its scale along inside the window: one post carries both. `expert_order` gives the
places, one window after the other; `scatter_rows` moves bfloat16 rows, `pack_int8_rows` the others.
"""

from __future__ import annotations

import torch
import triton.language as tl

from sglang_ascend.kernels.cores import vector_programs
from sglang_ascend.kernels.expert_order import order_pairs_launch
from sglang_ascend.kernels.launching import Backend, npu_backend
from sglang_ascend.kernels.moe_permute import scatter_rows_launch
from sglang_ascend.kernels.rows import DENSE, HERE, choose_width, row_configs
from sglang_ascend.kernels.spec import KernelSpec, Work, ascend_kernel
from sglang_ascend.ops import dispatch_pack as operator
from sglang_ascend.ops.spec import NpuLimit


@ascend_kernel
def pack_int8_rows(
    x_ptr,  # [tokens, hidden] int8, rows x_stride bytes apart
    x_scale_ptr,  # [tokens] float32
    row_index_ptr,  # [tokens * top_k] int32: row in the windows, negative if it has none
    windows_ptr,  # [rows, width] int8, output
    scales_ptr,  # the same memory as float32
    tokens,
    rows,
    top_k,
    hidden,
    width,
    x_stride,
    COLS: tl.constexpr,
):
    col = tl.arange(0, COLS)
    inside = col < hidden
    for token in range(tl.program_id(0), tokens, tl.num_programs(0)):
        x_row = x_ptr + token.to(tl.int64) * x_stride
        x = tl.load(x_row + col, mask=inside, other=0)
        scale = tl.load(x_scale_ptr + token)
        for choice in range(top_k):
            row = tl.load(row_index_ptr + token * top_k + choice)
            if row >= 0:
                if row < rows:
                    packed = row.to(tl.int64) * width
                    tl.store(windows_ptr + packed + col, x, mask=inside)
                    tl.store(scales_ptr + (packed + hidden) // 4, scale)


def dispatch_pack_launch(
    x: torch.Tensor,
    x_scale: torch.Tensor | None,
    ids: torch.Tensor,
    ranks: int,
    slots_per_rank: int,
    capacity: int,
    on: Backend | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x [tokens, hidden] int8 with x_scale [tokens] float32, or bfloat16 with None; ids [tokens,
    top_k] int32 -> (windows, counts, row_index) as the operator; what it leaves unspecified is not
    written.

    Raises `OperatorError` outside the features of `pack_int8_rows` and `order_pairs`.
    """
    on = on or npu_backend(x)
    # Its check of values looks at shapes only.
    operator.SPEC.check_inputs(
        {
            "x": x,
            "x_scale": x_scale,
            "ids": ids,
            "ranks": ranks,
            "slots_per_rank": slots_per_rank,
            "capacity": capacity,
        }
    )
    hidden, top_k = x.shape[1], ids.shape[1]
    quantised = x_scale is not None
    for stride in (x.stride(1), x_scale.stride(0) if quantised else 1):
        SPEC.require(
            on.device,
            dtype=x.dtype,
            hidden=hidden,
            hidden_bytes=hidden * x.element_size(),
            element_stride=stride,
        )
    slots, rows = ranks * slots_per_rank, ranks * capacity
    row_index, counts = order_pairs_launch(ids, 0, slots, slots_per_rank, capacity, on)
    width = operator.packed_width(hidden) if quantised else hidden
    windows = torch.empty(rows, width, dtype=x.dtype, device=x.device)
    if quantised:
        on.launch(
            SPEC,
            choose_width(SPEC, on.target, hidden, "i8"),
            (vector_programs(on.target, x.shape[0]),),
            x,
            x_scale,
            row_index,
            windows,
            windows.view(torch.float32),
            x.shape[0],
            rows,
            top_k,
            hidden,
            width,
            x.stride(0),
        )
    else:
        scatter_rows_launch(x, row_index, top_k, windows, on)
    return windows.view(ranks, capacity, width), counts.view(ranks, slots_per_rank), row_index


SPEC = KernelSpec(
    name="pack_int8_rows",
    kernel=pack_int8_rows,
    signature={
        "x_ptr": "*i8",
        "x_scale_ptr": "*fp32",
        "row_index_ptr": "*i32",
        "windows_ptr": "*i8",
        "scales_ptr": "*fp32",
        "tokens": "i32",
        "rows": "i32",
        "top_k": "i32",
        "hidden": "i32",
        "width": "i32",
        "x_stride": "i32",
    },
    configs=row_configs((2048, 8192), ("i8",)),
    launcher=dispatch_pack_launch,
    reference="dispatch_pack",
    features={
        "dtype": NpuLimit(HERE, allowed=(torch.bfloat16, torch.int8)),
        "hidden": NpuLimit(HERE, maximum=8192),
        "hidden_bytes": NpuLimit("unified buffer moves 32-byte blocks", multiple_of=32),
        "element_stride": DENSE,
    },
    work=(Work("decode 64 x top 8, 7168 int8", 0, 64 * (9 * 7168 + 8 * 8 + 4)),),
)
KERNELS = (SPEC,)
