"""Rows of all received windows in the order of the local experts.

Reference: `ops/dispatch_unpack.py`. The rows of one source rank for one expert lie together in its
window and together in the result: a program takes one such segment after the other, finds from the
counts where it begins on both sides, and moves its rows.
"""

from __future__ import annotations

import torch
import triton.language as tl

from sglang_ascend.kernels.cores import vector_programs
from sglang_ascend.kernels.launching import Backend, choose, npu_backend
from sglang_ascend.kernels.rows import HERE, shapes_only
from sglang_ascend.kernels.spec import KernelConfig, KernelSpec, Work, ascend_kernel
from sglang_ascend.ops import dispatch_unpack as operator
from sglang_ascend.ops.spec import NpuLimit

_SHAPES = shapes_only(operator.SPEC)
_DTYPES = {torch.bfloat16: "bf16", torch.int8: "i8"}


@ascend_kernel
def dispatch_unpack(
    windows_ptr,  # [ranks * capacity, width] T
    scales_ptr,  # the same memory as float32
    counts_ptr,  # [ranks, slots] int32
    rows_ptr,  # [ranks * capacity, hidden] T, output
    scale_ptr,  # [ranks * capacity] float32, output if SCALED
    window_index_ptr,  # [ranks * capacity] int32, output, -1 before
    ranks,
    slots,
    capacity,
    hidden,
    width,
    COLS: tl.constexpr,
    SEGMENTS: tl.constexpr,
    SCALED: tl.constexpr,
):
    col = tl.arange(0, COLS)
    inside = col < hidden
    number = tl.arange(0, SEGMENTS)
    real = number < ranks * slots
    # Counts came from other ranks: whatever they say, nothing is read or written elsewhere.
    counts = tl.load(counts_ptr + number, mask=real, other=0).to(tl.float32)
    counts = tl.minimum(tl.maximum(counts, 0.0), capacity.to(tl.float32))
    rank_of = ((number.to(tl.float32) + 0.5) / slots.to(tl.float32)).to(tl.int32).to(tl.float32)
    slot_of = number.to(tl.float32) - rank_of * slots.to(tl.float32)
    for segment in range(tl.program_id(0), ranks * slots, tl.num_programs(0)):
        rank = (segment // slots).to(tl.float32)
        slot = (segment % slots).to(tl.float32)
        same_rank = tl.where(rank_of == rank, counts, 0.0)
        same_slot = tl.where(slot_of == slot, counts, 0.0)
        before_in_window = tl.sum(tl.where(slot_of < slot, same_rank, 0.0), 0)
        lower_slots = tl.sum(tl.where(slot_of < slot, counts, 0.0), 0)
        lower_ranks = tl.sum(tl.where(rank_of < rank, same_slot, 0.0), 0)
        before = tl.minimum(before_in_window.to(tl.int32), capacity)
        row = tl.minimum((lower_slots + lower_ranks).to(tl.int32), ranks * capacity)
        place = (segment // slots) * capacity + before
        count = tl.minimum(tl.load(counts_ptr + segment), capacity - before)
        for step in range(tl.minimum(count, ranks * capacity - row)):
            packed = (place + step).to(tl.int64) * width
            x = tl.load(windows_ptr + packed + col, mask=inside, other=0)
            tl.store(rows_ptr + (row + step).to(tl.int64) * hidden + col, x, mask=inside)
            if SCALED:
                tl.store(scale_ptr + row + step, tl.load(scales_ptr + (packed + hidden) // 4))
            tl.store(window_index_ptr + place + step, row + step)


def dispatch_unpack_launch(
    windows: torch.Tensor, counts: torch.Tensor, hidden: int, on: Backend | None = None
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor]:
    """windows [ranks, capacity, width] bfloat16 or int8, counts [ranks, slots] int32 -> (rows,
    scale, tokens_per_expert, window_index) as the operator; what it leaves unspecified is not
    written. Counts that cannot be are not noticed here, and write nothing outside of the results.

    Raises `OperatorError` outside `SPEC.features`.
    """
    on = on or npu_backend(windows)
    _SHAPES.check_inputs({"windows": windows, "counts": counts})
    operator.check_width(windows, hidden)
    ranks, capacity, width = windows.shape
    slots = counts.shape[1]
    SPEC.require(
        on.device,
        dtype=windows.dtype,
        hidden=hidden,
        hidden_bytes=hidden * windows.element_size(),
        segments=ranks * slots,
        rows=ranks * capacity,
        rows_times_slots=ranks * capacity * slots,
        contiguous=windows.is_contiguous() and counts.is_contiguous(),
    )
    device, scaled = windows.device, windows.dtype == torch.int8
    rows = torch.empty(ranks * capacity, hidden, dtype=windows.dtype, device=device)
    scale = torch.empty(ranks * capacity, dtype=torch.float32, device=device)
    window_index = torch.full((ranks * capacity,), -1, dtype=torch.int32, device=device)
    config = choose(
        SPEC,
        on.target,
        lambda config: (
            config.dtype == _DTYPES[windows.dtype]
            and config.constexprs["COLS"] >= hidden
            and config.constexprs["SEGMENTS"] >= ranks * slots
        ),
        lambda config: (config.constexprs["COLS"], config.constexprs["SEGMENTS"]),
    )
    on.launch(
        SPEC,
        config,
        (vector_programs(on.target, ranks * slots),),
        windows,
        windows.view(torch.float32) if scaled else scale,
        counts,
        rows,
        scale,
        window_index,
        ranks,
        slots,
        capacity,
        hidden,
        width,
    )
    tokens_per_expert = counts.sum(0, dtype=torch.int64)
    return rows, scale if scaled else None, tokens_per_expert, window_index


SPEC = KernelSpec(
    name="dispatch_unpack",
    kernel=dispatch_unpack,
    signature={
        "windows_ptr": "*T",
        "scales_ptr": "*fp32",
        "counts_ptr": "*i32",
        "rows_ptr": "*T",
        "scale_ptr": "*fp32",
        "window_index_ptr": "*i32",
        "ranks": "i32",
        "slots": "i32",
        "capacity": "i32",
        "hidden": "i32",
        "width": "i32",
    },
    configs=tuple(
        KernelConfig(
            f"cols{cols}_segments{segments}_{dtype}",
            {"COLS": cols, "SEGMENTS": segments, "SCALED": dtype == "i8"},
            dtype,
        )
        for dtype in ("bf16", "i8")
        for cols in (2048, 8192)
        for segments in (64, 512)
    ),
    launcher=dispatch_unpack_launch,
    reference="dispatch_unpack",
    features={
        "dtype": NpuLimit(HERE, allowed=tuple(_DTYPES)),
        "hidden": NpuLimit(HERE, maximum=8192),
        "hidden_bytes": NpuLimit("unified buffer moves 32-byte blocks", multiple_of=32),
        "segments": NpuLimit(HERE, maximum=512),
        "rows": NpuLimit("float32 counts exactly up to 2**24", maximum=2**24),
        "rows_times_slots": NpuLimit("sums of wrong counts fit int32", maximum=2**31 - 1),
        "contiguous": NpuLimit(HERE, allowed=(True,)),
    },
    work=(Work("decode, EP 32: 512 rows of 7168 int8", 0, 512 * (7168 * 2 + 12)),),
)
KERNELS = (SPEC,)
