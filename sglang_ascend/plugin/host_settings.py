"""How a server's processes use memory and cores of the machine.

A decode step on a CPU reads every weight once, and with pages of 4 KiB the look-up of addresses
alone costs a fifth of that: torch is asked for huge pages. By default glibc maps every block of
some megabytes anew and unmaps it when it is freed, and the kernel clears each page again: an eighth
of a prefill step of a small model.

oneDNN compiles a product for every number of rows and keeps a thousand of them, and torch's side of
it as many, of more than a megabyte each: with prompts of all lengths, gigabytes.

A thread of OpenMP that has no work looks for some for milliseconds by default, which is half of a
decode step, on a core that native kernels, other ranks and the streaming of answers want.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import MutableMapping

#: Read by torch at its first allocation.
_HUGE_PAGES = ("THP_MEM_ALLOC_ENABLE", "1")
#: Looks of an idle thread of GNU's OpenMP: about 0.2 ms, enough between two products of a layer.
_SPINS = ("GOMP_SPINCOUNT", "5000")
_WAIT_POLICY = "OMP_WAIT_POLICY"
#: Products that oneDNN and torch's side of it keep compiled: those of some steps, of a dozen each.
#: One that has gone is compiled again in half a millisecond.
_KEPT_PRODUCTS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}
# From glibc's malloc.h, with the largest values that it takes.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_KEPT_BYTES = 32 << 20
_NEVER = 2**31 - 1


def publish(environ: MutableMapping[str, str] = os.environ) -> None:
    """Set the variables that libraries read when they are loaded; the user's own settings win."""
    environ.setdefault(*_HUGE_PAGES)
    if _WAIT_POLICY not in environ:
        environ.setdefault(*_SPINS)


def settle() -> None:
    """To be called in a process that computes, before its first product."""
    keep_freed_memory()
    bound_caches()


def bound_caches() -> None:
    """Of compiled products, where no product has been asked for yet; the user's settings win."""
    for name, value in _KEPT_PRODUCTS.items():
        os.environ.setdefault(name, value)


def keep_freed_memory() -> bool:
    """Whether this process will keep freed blocks up to 32 MiB (another C library may not)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    return bool(
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES) and mallopt(_M_TRIM_THRESHOLD, _NEVER)
    )
