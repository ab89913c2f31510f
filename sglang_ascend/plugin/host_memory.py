"""How a server's processes take memory.

A decode step on a CPU reads every weight once, and with pages of 4 KiB the look-up of addresses
alone costs a fifth of that: torch is asked for huge pages. By default glibc maps every block of
some megabytes anew and unmaps it when it is freed, and the kernel clears each page again: an eighth
of a prefill step of a small model.
"""

from __future__ import annotations

import ctypes

#: Read by torch at its first allocation.
HUGE_PAGES_ENV = {"THP_MEM_ALLOC_ENABLE": "1"}
# From glibc's malloc.h, with the largest values that it takes.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_KEPT_BYTES = 32 << 20
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Whether this process will keep freed blocks up to 32 MiB (another C library may not)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    return bool(
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES) and mallopt(_M_TRIM_THRESHOLD, _NEVER)
    )
