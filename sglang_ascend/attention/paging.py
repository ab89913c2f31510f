"""A token-major cache buffer of SGLang, seen as blocks of one page each."""

from __future__ import annotations

import torch


def as_blocks(buffer: torch.Tensor, page_size: int) -> torch.Tensor:
    """View ``buffer`` [slots, heads, dim] as [blocks, page_size, heads, dim], without a copy.

    SGLang allocates one page beyond the pool for padding rows, and rounds the pool to whole pages;
    a rest smaller than a page is never handed out and is left out of the view.
    """
    blocks = buffer.shape[0] // page_size
    return buffer[: blocks * page_size].unflatten(0, (blocks, page_size))
