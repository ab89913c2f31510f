"""Bring the rows of all received windows into the order of the local experts."""

import torch

from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3, TINY_DEEPSEEK, MlaModel
from sglang_ascend.ops.dispatch_pack import packed_width
from sglang_ascend.ops.spec import (
    FLOATS,
    ContractCase,
    Operator,
    OperatorError,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)

SPEC = OperatorSpec(
    name="dispatch_unpack",
    summary="Rows of the windows of `dispatch_pack` by expert slot, then source rank, then token.",
    source="CANN ops-transformer, design notes of MoeDistributeDispatch: repacking by expert",
    inputs={
        "windows": TensorSpec(("ranks", "capacity", "width"), (*FLOATS, torch.int8)),
        "counts": TensorSpec(("ranks", "slots"), (torch.int32,)),
    },
    outputs={
        "rows": TensorSpec(("ranks*capacity", "hidden"), like="windows"),
        "scale": TensorSpec(("ranks*capacity",), (torch.float32,), optional=True),
        "tokens_per_expert": TensorSpec(("slots",), (torch.int64,)),
        "window_index": TensorSpec(("ranks*capacity",), (torch.int32,)),
    },
    tolerance=Tolerance("a move: exact, except for the unspecified rows"),
    values=lambda arguments: check_arguments(**arguments),
)


def check_arguments(windows, counts, hidden: int) -> None:
    check_width(windows, hidden)
    sums = counts.sum(1)
    if counts.numel() and (int(counts.min()) < 0 or int(sums.max()) > windows.shape[1]):
        raise OperatorError(
            f"{SPEC.name}: counts must not be negative and add up to at most {windows.shape[1]}"
            f" rows a window, got sums up to {int(sums.max())}"
        )


def check_width(windows: torch.Tensor, hidden: int) -> None:
    wanted = packed_width(hidden) if windows.dtype == torch.int8 else hidden
    if windows.shape[2] != wanted:
        raise OperatorError(
            f"{SPEC.name}: windows axis 2 must be {wanted} for rows of {hidden} {windows.dtype}"
            f" values, got {windows.shape[2]}"
        )


def reference(
    windows: torch.Tensor, counts: torch.Tensor, hidden: int
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor]:
    """windows [ranks, capacity, width] as `dispatch_pack` makes them, one from each source rank.

    counts [ranks, slots] int32: rows of each source rank for each local slot. hidden: values of a
    row. Returns rows [ranks * capacity, hidden], their scale float32 if they are INT8 (else None),
    tokens_per_expert [slots] int64 and window_index [ranks * capacity] int32: the row of each place
    in the windows, -1 where no row came. Rows behind the sum of tokens_per_expert are unspecified.
    """
    ranks, capacity, width = windows.shape
    slots = counts.shape[1]
    place = torch.arange(capacity, device=windows.device).expand(ranks, capacity).contiguous()
    slot = torch.searchsorted(counts.cumsum(1), place, right=True)
    key = (slot * ranks + torch.arange(ranks, device=windows.device).unsqueeze(1)).flatten()
    order = key.argsort(stable=True)
    row = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    window_index = torch.where(slot.flatten() < slots, row, -1).int()
    packed = windows.view(-1, width).index_select(0, order)
    tokens_per_expert = counts.sum(0, dtype=torch.int64)
    if windows.dtype != torch.int8:
        return packed, None, tokens_per_expert, window_index
    scale = packed[:, hidden : hidden + 4].contiguous().view(torch.float32).squeeze(1)
    return packed[:, :hidden].contiguous(), scale, tokens_per_expert, window_index


def npu(windows, counts, hidden):
    """Made of aten operators, which torch_npu has."""
    return reference(windows, counts, hidden)


def _case(label: str, model: MlaModel, tokens: int, ranks: int) -> ContractCase:
    def build(device, dtype):
        slots = model.experts // ranks
        width = packed_width(model.hidden) if dtype == torch.int8 else model.hidden
        shape = ranks, tokens * min(model.top_k, slots), width
        return {
            "windows": torch.zeros(shape, dtype=dtype, device=device),
            "counts": torch.zeros(ranks, slots, dtype=torch.int32, device=device),
            "hidden": model.hidden,
        }

    return ContractCase(label, build, torch.int8 if model is DEEPSEEK_V3 else torch.bfloat16)


CONTRACT = (
    _case("tiny-deepseek-v3 decode, EP 2", TINY_DEEPSEEK, 8, 2),
    _case("DeepSeek-V3 decode, EP 32", DEEPSEEK_V3, 64, 32),
)

dispatch_unpack = Operator(SPEC, reference, npu, CONTRACT)
