"""Joins the partial attention results of key stretches that different programs computed."""

from __future__ import annotations

import torch
import triton.language as tl

from sglang_ascend.kernels.attention_plan import AttentionPlan
from sglang_ascend.kernels.launching import Backend, choose
from sglang_ascend.kernels.spec import KernelConfig, KernelSpec, Work, ascend_kernel
from sglang_ascend.ops.spec import NpuLimit

_HERE = "kernels/split_combine.py"
_NOTHING_SEEN = tl.constexpr(-1.0e30)


@ascend_kernel
def split_combine(
    part_ptr,  # [slots, heads, rows_per_tile, DIM] fp32: normalised results of the stretches
    log_sum_ptr,  # [slots, heads, rows_per_tile] fp32: log of the sum of their weights
    tiles_ptr,  # [tiles, 4] int32, see attention_plan.py
    out_ptr,  # output, at head * out_head + row * out_row
    heads,
    rows_per_tile,
    out_head,
    out_row,
    ROWS: tl.constexpr,
    DIM: tl.constexpr,
):
    """One program: ROWS rows of a tile, of one head. out = sum_s w_s part_s, w = softmax(log)."""
    tile = tiles_ptr + tl.program_id(0) * 4
    head = tl.program_id(2)
    first_slot = tl.load(tile)
    slots = tl.load(tile + 1)
    first = tl.load(tile + 2)
    count = tl.load(tile + 3)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, DIM)
    real = row < count
    top = tl.full((ROWS,), _NOTHING_SEEN, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    result = tl.zeros((ROWS, DIM), tl.float32)
    for slot in range(first_slot, first_slot + slots):
        at = (slot * heads + head) * rows_per_tile + row
        log_sum = tl.load(log_sum_ptr + at, mask=real, other=0.0)
        part = tl.load(
            part_ptr + at[:, None] * DIM + column[None, :], mask=real[:, None], other=0.0
        )
        new_top = tl.maximum(top, log_sum)
        shrink = tl.exp(top - new_top)
        weight = tl.exp(log_sum - new_top)
        result = result * shrink[:, None] + part * weight[:, None]
        total = total * shrink + weight
        top = new_top
    result = result / total[:, None]
    out = out_ptr + head * out_head + (first + row)[:, None] * out_row + column[None, :]
    tl.store(out, result.to(out_ptr.dtype.element_ty), mask=real[:, None])


def combine(
    on: Backend,
    plan: AttentionPlan,
    part: torch.Tensor,
    log_sum: torch.Tensor,
    out: torch.Tensor,
    out_head: int,
    out_row: int,
) -> None:
    """Write the joined results of a split plan into `out`.

    part [slots, heads, rows_per_tile, dim] and log_sum [slots, heads, rows_per_tile], float32;
    out: bfloat16, row r of head h at element h * out_head + r * out_row.
    """
    _, heads, rows_per_tile, dim = part.shape
    SPEC.require(on.device, dim=dim, rows_per_tile=rows_per_tile, dtype=out.dtype)
    config = choose(SPEC, on.target, lambda config: config.constexprs["DIM"] == dim)
    grid = (plan.tiles.shape[0], rows_per_tile // config.constexprs["ROWS"], heads)
    on.launch(
        SPEC,
        config,
        grid,
        part,
        log_sum,
        plan.tiles,
        out,
        heads,
        rows_per_tile,
        out_head,
        out_row,
    )


def reference(part: torch.Tensor, log_sum: torch.Tensor) -> torch.Tensor:
    """part [splits, rows, dim], log_sum [splits, rows] of one tile -> [rows, dim], in float64."""
    return (log_sum.double().softmax(0).unsqueeze(-1) * part.double()).sum(0)


SPEC = KernelSpec(
    name="split_combine",
    kernel=split_combine,
    signature={
        "part_ptr": "*fp32",
        "log_sum_ptr": "*fp32",
        "tiles_ptr": "*i32",
        "out_ptr": "*T",
        "heads": "i32",
        "rows_per_tile": "i32",
        "out_head": "i32",
        "out_row": "i32",
    },
    configs=tuple(KernelConfig(f"dim{dim}", {"ROWS": 16, "DIM": dim}) for dim in (64, 128, 512)),
    launcher=combine,
    reference="sglang_ascend.kernels.split_combine:reference",
    features={
        "dim": NpuLimit(_HERE, allowed=(64, 128, 512)),
        "rows_per_tile": NpuLimit(_HERE, multiple_of=16),
        "dtype": NpuLimit(_HERE, allowed=(torch.bfloat16,)),
    },
    work=(Work("128 heads, 8 stretches, dim 512", 0, 128 * (8 * (512 + 1) * 4 + 512 * 2)),),
)
KERNELS = (SPEC,)
