"""Rows of a paged cache [blocks, page, ...] on the reference device. Slot = block * page +
offset.
"""

import torch

from sglang_ascend.native import rows as native_rows
from sglang_ascend.ops.ragged import PaddedBatch
from sglang_ascend.ops.spec import OperatorError


def flat_rows(cache: torch.Tensor) -> torch.Tensor | None:
    """The cache as [blocks * page, ...] without a copy; None if its strides do not allow that."""
    if cache.stride(0) != cache.stride(1) * cache.shape[1] and cache.shape[0] > 1:
        return None
    return cache.view(-1, *cache.shape[2:])


def gather_rows(cache: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """cache [blocks, page, ...], slots of any shape -> rows [*slots.shape, ...]."""
    rows = flat_rows(cache)
    if rows is None:
        page = cache.shape[1]
        return cache[slots // page, slots % page]
    return rows.index_select(0, slots.flatten()).view(*slots.shape, *cache.shape[2:])


def write_rows(cache: torch.Tensor, slots: torch.Tensor, rows: torch.Tensor) -> None:
    """cache[slot] = row in place, for slots [tokens] and rows [tokens, ...]; skip slots below 0."""
    if native_rows.write_rows(cache, slots, rows) is not NotImplemented:
        return
    if bool((slots < 0).any()):
        kept = (slots >= 0).nonzero().squeeze(1)
        slots, rows = slots.index_select(0, kept), rows.index_select(0, kept)
    if slots.numel() == 0:
        return
    flat = flat_rows(cache)
    if flat is None:
        page = cache.shape[1]
        cache[slots // page, slots % page] = rows
    else:
        flat.index_copy_(0, slots.long(), rows)


def check_slots(operator: str, slots: torch.Tensor, cache: torch.Tensor) -> None:
    """Raise `OperatorError` if a slot lies behind the cache."""
    capacity = cache.shape[0] * cache.shape[1]
    if slots.numel() and int(slots.max()) >= capacity:
        raise OperatorError(
            f"{operator}: slots must be below {capacity} (blocks * page), got {int(slots.max())}"
        )


def key_slots(batch: PaddedBatch, block_table: torch.Tensor, page: int) -> torch.Tensor:
    """Cache slots [b, s] of the key positions of a padded batch."""
    table = block_table if batch.requests is None else block_table.index_select(0, batch.requests)
    blocks = table.gather(1, batch.kv_positions // page)
    return blocks.long() * page + batch.kv_positions % page
