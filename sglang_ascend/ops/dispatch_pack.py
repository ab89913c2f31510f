"""Sort tokens into one window a destination rank: what a rank posts to its peers, one post each."""

import torch

from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3, TINY_DEEPSEEK, MlaModel
from sglang_ascend.ops.spec import (
    FLOATS,
    ContractCase,
    Operator,
    OperatorError,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)

# A packed INT8 row ends in its float32 scale and is padded to whole 512-byte blocks, as in the
# dispatch of arXiv 2506.12708: 7168 values become 7680 bytes.
_SCALE_BYTES = 4
_BLOCK_BYTES = 512

SPEC = OperatorSpec(
    name="dispatch_pack",
    summary=(
        "Rows of the (token, choice) pairs, per rank of their expert slot, by slot and then token."
    ),
    source="CANN ops-transformer, design notes of MoeDistributeDispatch: windows, counts, indices",
    inputs={
        "x": TensorSpec(("tokens", "hidden"), (*FLOATS, torch.int8)),
        "x_scale": TensorSpec(("tokens",), (torch.float32,), optional=True),
        "ids": TensorSpec(("tokens", "top_k"), (torch.int32,)),
    },
    outputs={
        "windows": TensorSpec(("ranks", "capacity", "width"), like="x"),
        "counts": TensorSpec(("ranks", "slots_per_rank"), (torch.int32,)),
        "row_index": TensorSpec(("tokens*top_k",), (torch.int32,)),
    },
    tolerance=Tolerance("a move: exact, except for the unspecified rows and padding"),
    values=lambda arguments: check_arguments(**arguments),
)


def packed_width(hidden: int) -> int:
    """Bytes of a packed INT8 row with its scale."""
    return -(-(hidden + _SCALE_BYTES) // _BLOCK_BYTES) * _BLOCK_BYTES


def check_arguments(x, x_scale, ids, ranks: int, slots_per_rank: int, capacity: int) -> None:
    if (x.dtype == torch.int8) != (x_scale is not None):
        raise OperatorError(
            f"{SPEC.name}: INT8 rows need x_scale and others must have none, got {x.dtype} with"
            f" x_scale {'missing' if x_scale is None else 'given'}"
        )
    if min(ranks, slots_per_rank) < 1:
        raise OperatorError(
            f"{SPEC.name}: ranks and slots_per_rank must be at least 1, got {ranks} and"
            f" {slots_per_rank}"
        )
    tokens, top_k = ids.shape
    most = tokens * min(top_k, slots_per_rank)
    if capacity < most:
        raise OperatorError(
            f"{SPEC.name}: capacity must be at least {most}, the most rows that {tokens} tokens can"
            f" send to one rank, got {capacity}"
        )


def reference(
    x: torch.Tensor,
    x_scale: torch.Tensor | None,
    ids: torch.Tensor,
    ranks: int,
    slots_per_rank: int,
    capacity: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x [tokens, hidden], ids [tokens, top_k] int32 -> (windows, counts, row_index).

    Slot s belongs to rank s // slots_per_rank. Pairs whose id is no slot are skipped, -1 among
    them. The slots of one token are distinct. x_scale [tokens] float32: with INT8 rows only.

    windows [ranks, capacity, width]: rows by slot, then token; what lies behind the counted rows is
    unspecified. width is hidden, or, for INT8, packed_width(hidden): the values, the four bytes of
    the scale, padding. counts [ranks, slots_per_rank] int32. row_index [tokens * top_k] int32: row
    of a pair in the windows as [ranks * capacity, width], -1 if skipped; `moe_unpermute` takes it
    with what comes back into windows of the same layout.
    """
    slots, top_k = ranks * slots_per_rank, ids.shape[1]
    ids = ids.flatten().long()
    skipped = (ids < 0) | (ids >= slots)
    ids = ids.masked_fill(skipped, slots)
    counts = torch.zeros(slots + 1, dtype=torch.int64, device=x.device)
    counts.scatter_add_(0, ids, torch.ones_like(ids))
    first = counts.cumsum(0) - counts
    order = ids.argsort(stable=True)
    sorted_row = torch.empty_like(order).scatter_(0, order, torch.arange(len(ids), device=x.device))
    rank = ids.clamp_max(slots - 1) // slots_per_rank
    position = sorted_row - first[rank * slots_per_rank]
    skipped |= position >= capacity
    row_index = torch.where(skipped, -1, rank * capacity + position)
    rows = _pack(x, x_scale).repeat_interleave(top_k, dim=0)
    # One row more takes what is skipped: a choice of rows would make the host wait for the device.
    windows = rows.new_zeros(ranks * capacity + 1, rows.shape[1])
    windows.index_copy_(0, row_index.masked_fill(skipped, ranks * capacity), rows)
    windows = windows[:-1].view(ranks, capacity, -1)
    return windows, counts[:-1].view(ranks, -1).int(), row_index.int()


def _pack(x: torch.Tensor, x_scale: torch.Tensor | None) -> torch.Tensor:
    if x_scale is None:
        return x
    padding = packed_width(x.shape[1]) - x.shape[1] - _SCALE_BYTES
    scale = x_scale.contiguous().view(torch.int8).view(-1, _SCALE_BYTES)
    return torch.cat((x, scale, x.new_zeros(x.shape[0], padding)), dim=1)


def npu(x, x_scale, ids, ranks, slots_per_rank, capacity):
    """Made of aten operators, which torch_npu has."""
    return reference(x, x_scale, ids, ranks, slots_per_rank, capacity)


def _case(label: str, model: MlaModel, tokens: int, ranks: int) -> ContractCase:
    def build(device, dtype):
        return {
            "x": torch.zeros(tokens, model.hidden, dtype=dtype, device=device),
            "x_scale": torch.zeros(tokens, device=device) if dtype == torch.int8 else None,
            "ids": torch.zeros(tokens, model.top_k, dtype=torch.int32, device=device),
            "ranks": ranks,
            "slots_per_rank": model.experts // ranks,
            "capacity": tokens * min(model.top_k, model.experts // ranks),
        }

    return ContractCase(label, build, torch.int8 if model is DEEPSEEK_V3 else torch.bfloat16)


CONTRACT = (
    _case("tiny-deepseek-v3 decode, EP 2", TINY_DEEPSEEK, 8, 2),
    _case("DeepSeek-V3 decode, EP 32", DEEPSEEK_V3, 64, 32),
)

dispatch_pack = Operator(SPEC, reference, npu, CONTRACT)
