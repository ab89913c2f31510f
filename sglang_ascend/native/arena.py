"""Memory in huge pages for weights that are each too small for one.

A step reads every weight once, and with pages of 4 KiB the look-up of their addresses misses the
caches as well. torch asks for huge pages from 2 MiB on; the packed weights of a small model are
smaller than that.
"""

from __future__ import annotations

import mmap

import torch

_CHUNK_BYTES = 32 << 20
_LINE_BYTES = 64

_chunk: torch.Tensor = torch.empty(0, dtype=torch.int8)


def empty(nbytes: int) -> torch.Tensor:
    """[nbytes] int8, uninitialised, on a cache line of its own.

    A chunk is freed with the last of the tensors in it.
    """
    global _chunk
    size = -(-nbytes // _LINE_BYTES) * _LINE_BYTES
    if size > _CHUNK_BYTES // 4:
        return mapped(size, huge=True)[:nbytes]
    if size > len(_chunk):
        _chunk = mapped(_CHUNK_BYTES, huge=True)
    taken, _chunk = _chunk[:nbytes], _chunk[size:]
    return taken


def mapped(nbytes: int, huge: bool = False) -> torch.Tensor:
    """[nbytes] int8 zeros in a mapping of their own, whose pages are taken when first written.

    huge: ask for huge pages, where the system has them.
    """
    pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if huge and hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=torch.int8)
