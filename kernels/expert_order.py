"""The place of every (token, choice) pair when pairs are sorted by expert slot. Stable, no sort.

A program has a chunk of consecutive pairs. `count_pairs` counts the experts of each chunk;
`order_pairs` starts from the sums of the chunks before its own and gives each pair the next place
of its expert. Slots may be grouped into windows, one a destination rank, which begin at multiples
of a capacity; a plain permutation is one window. Reference: `ops/moe_permute.py` (row_index,
tokens_per_expert), `ops/dispatch_pack.py` for windows.

Counts are float32, exact up to 2**24: the vector cores compare and select float32 at full rate.
"""

from __future__ import annotations

import torch
import triton.language as tl

from sglang_ascend.kernels.cores import vector_programs
from sglang_ascend.kernels.launching import Backend, choose
from sglang_ascend.kernels.rows import HERE
from sglang_ascend.kernels.spec import KernelConfig, KernelSpec, Work, ascend_kernel
from sglang_ascend.ops.spec import NpuLimit

_NO_PAIR = tl.constexpr(-(2**30))


@ascend_kernel
def count_pairs(
    ids_ptr,  # [pairs] int32
    chunk_counts_ptr,  # [chunks, EXPERTS] float32, output
    pairs,
    start,
    chunk,
    PAIRS: tl.constexpr,
    EXPERTS: tl.constexpr,
):
    pair = tl.arange(0, PAIRS)
    number = tl.arange(0, EXPERTS)
    expert = number.to(tl.float32)[None, :]
    begin = tl.program_id(0) * chunk
    end = tl.minimum(begin + chunk, pairs)
    counts = tl.zeros((EXPERTS,), tl.float32)
    for first in range(begin, end, PAIRS):
        ids = tl.load(ids_ptr + first + pair, mask=pair < end - first, other=_NO_PAIR)
        local = (ids - start).to(tl.float32)[:, None]
        counts += tl.sum(tl.where(local == expert, 1.0, 0.0), 0)
    tl.store(chunk_counts_ptr + tl.program_id(0) * EXPERTS + number, counts)


@ascend_kernel
def order_pairs(
    ids_ptr,  # [pairs] int32
    chunk_counts_ptr,  # [chunks, EXPERTS] float32
    row_index_ptr,  # [pairs] int32, output: place of the pair, -1 if it has no expert here
    counts_ptr,  # [experts] int32, output
    pairs,
    experts,
    start,
    chunk,
    window,  # slots of a window
    capacity,  # rows of a window
    PAIRS: tl.constexpr,
    EXPERTS: tl.constexpr,
    PART: tl.constexpr,  # chunks or experts that are looked at together
):
    me = tl.program_id(0)
    chunks = tl.num_programs(0)
    pair = tl.arange(0, PAIRS)
    other = tl.arange(0, PART)[:, None]
    # A row of a matrix all along: a vector that loops carry and broadcast costs the compiler 32
    # times its size.
    number = tl.arange(0, EXPERTS)[None, :]
    expert = number.to(tl.float32)
    base = tl.zeros((1, EXPERTS), tl.float32)
    total = tl.zeros((1, EXPERTS), tl.float32)
    for first in range(0, chunks, PART):
        tile = chunk_counts_ptr + (first + other) * EXPERTS + number
        counts = tl.load(tile, mask=other < chunks - first, other=0.0)
        total += tl.sum(counts, 0, keep_dims=True)
        base += tl.sum(tl.where(other < me - first, counts, 0.0), 0, keep_dims=True)
    if me == 0:
        tl.store(counts_ptr + number, total.to(tl.int32), mask=number < experts)
    # Where the rows of each expert begin: its window, and the experts before it in there.
    window_of = ((expert + 0.5) / window).to(tl.int32).to(tl.float32)
    base += window_of * capacity
    for low in range(0, EXPERTS, PART):
        lower = (low + other).to(tl.float32)
        rows = tl.sum(tl.where(lower == expert, total, 0.0), 1)
        before = tl.where(lower < expert, rows[:, None], 0.0)
        lower_window = ((lower + 0.5) / window).to(tl.int32).to(tl.float32)
        base += tl.sum(tl.where(lower_window == window_of, before, 0.0), 0, keep_dims=True)
    order = pair.to(tl.float32)
    earlier = tl.where(order[None, :] < order[:, None], 1.0, 0.0)
    begin = me * chunk
    end = tl.minimum(begin + chunk, pairs)
    for first in range(begin, end, PAIRS):
        inside = pair < end - first
        ids = tl.load(ids_ptr + first + pair, mask=inside, other=_NO_PAIR)
        local = (ids - start).to(tl.float32)
        hit = tl.where(local[:, None] == expert, 1.0, 0.0)
        same = tl.where(local[:, None] == local[None, :], 1.0, 0.0)
        place = tl.sum(hit * base, 1) + tl.sum(same * earlier, 1)
        known = tl.where(local >= 0.0, 1.0, 0.0)
        known = tl.where(local < experts.to(tl.float32), known, 0.0)
        row_index = ((place + 1.0) * known - 1.0).to(tl.int32)
        tl.store(row_index_ptr + first + pair, row_index, mask=inside)
        base += tl.sum(hit, 0, keep_dims=True)


def order_pairs_launch(
    ids: torch.Tensor, start: int, experts: int, window: int, capacity: int, on: Backend
) -> tuple[torch.Tensor, torch.Tensor]:
    """ids [tokens, top_k] int32 -> (row_index [tokens * top_k] int32, counts [experts] int32).

    The slots are start..start + experts - 1, `window` of them a window; window w begins at row
    w * capacity. Raises `OperatorError` outside `ORDER_PAIRS.features`.
    """
    pairs, windows = ids.numel(), -(-experts // window)
    ORDER_PAIRS.require(
        on.device,
        dtype=ids.dtype,
        experts=experts,
        rows=max(pairs, windows * capacity),
        contiguous=ids.is_contiguous(),
    )
    ordering = choose(
        ORDER_PAIRS,
        on.target,
        lambda config: config.constexprs["EXPERTS"] >= experts,
        lambda config: config.constexprs["EXPERTS"],
    )
    counting = choose(COUNT_PAIRS, on.target, lambda config: config.name == ordering.name)
    width, step = ordering.constexprs["EXPERTS"], ordering.constexprs["PAIRS"]
    blocks = max(1, -(-pairs // step))
    chunk = -(-blocks // vector_programs(on.target, blocks)) * step
    chunks = max(1, -(-pairs // chunk))
    device = ids.device
    chunk_counts = torch.empty(chunks, width, dtype=torch.float32, device=device)
    row_index = torch.empty(pairs, dtype=torch.int32, device=device)
    counts = torch.empty(experts, dtype=torch.int32, device=device)
    on.launch(COUNT_PAIRS, counting, (chunks,), ids, chunk_counts, pairs, start, chunk)
    on.launch(
        ORDER_PAIRS,
        ordering,
        (chunks,),
        ids,
        chunk_counts,
        row_index,
        counts,
        pairs,
        experts,
        start,
        chunk,
        window,
        capacity,
    )
    return row_index, counts


# (PAIRS, EXPERTS, PART): more at a time where fewer experts leave room.
_SIZES = ((64, 16, 16), (64, 64, 16), (32, 256, 8), (16, 512, 8))


def _configs(*names: str) -> tuple[KernelConfig, ...]:
    return tuple(
        KernelConfig(
            f"pairs{size[0]}_experts{size[1]}",
            {
                name: value
                for name, value in zip(("PAIRS", "EXPERTS", "PART"), size)
                if name in names
            },
        )
        for size in _SIZES
    )


_FEATURES = {
    "dtype": NpuLimit(HERE, allowed=(torch.int32,)),
    "experts": NpuLimit(HERE, maximum=512),
    "rows": NpuLimit("float32 counts exactly up to 2**24", maximum=2**24),
    "contiguous": NpuLimit(HERE, allowed=(True,)),
}
COUNT_PAIRS = KernelSpec(
    name="count_pairs",
    kernel=count_pairs,
    signature={
        "ids_ptr": "*i32",
        "chunk_counts_ptr": "*fp32",
        "pairs": "i32",
        "start": "i32",
        "chunk": "i32",
    },
    configs=_configs("PAIRS", "EXPERTS"),
    launcher=order_pairs_launch,
    reference="moe_permute",
    features=_FEATURES,
    work=(Work("prefill 4096 x top 8, 256 experts", 0, 4096 * 8 * 4 + 48 * 256 * 4),),
)
ORDER_PAIRS = KernelSpec(
    name="order_pairs",
    kernel=order_pairs,
    signature={
        "ids_ptr": "*i32",
        "chunk_counts_ptr": "*fp32",
        "row_index_ptr": "*i32",
        "counts_ptr": "*i32",
        "pairs": "i32",
        "experts": "i32",
        "start": "i32",
        "chunk": "i32",
        "window": "i32",
        "capacity": "i32",
    },
    configs=_configs("PAIRS", "EXPERTS", "PART"),
    launcher=order_pairs_launch,
    reference="moe_permute",
    features=_FEATURES,
    work=(Work("prefill 4096 x top 8, 256 experts", 0, 4096 * 8 * 8 + 48 * 256 * 4),),
)
KERNELS = (COUNT_PAIRS, ORDER_PAIRS)
