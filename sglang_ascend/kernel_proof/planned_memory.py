"""Use of on-chip memory, read from the text of HIVM.

After memory planning a buffer is `pointer_cast(%address, ...) : memref<..., address_space<ub>>`,
with one address for each of its copies. A core has its own memories, and the functions for cube and
vector cores are planned apart, so the highest end of any buffer is the use of the kernel.
"""

from __future__ import annotations

import re
from math import prod

# Memories of one core: unified buffer of a vector core; L1 and L0C of a cube core.
LIMIT_BYTES = {"ub": 192 * 1024, "cbuf": 512 * 1024, "cc": 128 * 1024}

_CONSTANT = re.compile(r"(%\w+) = arith\.constant (\d+) : i64")
_BUFFER = re.compile(
    r"hivm\.hir\.pointer_cast\(([^)]*)\) : memref<([\dx?]*?)x?([a-z]+\d+)\b.*?"
    r"#hivm\.address_space<(\w+)>"
)
_ALLOC = re.compile(r"memref\.alloc\(.*?#hivm\.address_space<(ub|cbuf|cc)>")


def peaks(hivm: str) -> dict[str, int]:
    """Highest planned address plus one, in bytes, by address space ("ub", "cbuf", "cc")."""
    constants: dict[str, int] = {}
    highest: dict[str, int] = {}
    for line in hivm.splitlines():
        if "func.func" in line:
            constants = {}
        if constant := _CONSTANT.search(line):
            constants[constant[1]] = int(constant[2])
        if buffer := _BUFFER.search(line):
            addresses, sizes, element, space = buffer.groups()
            end = _address(addresses, constants) + _bytes(sizes, element)
            highest[space] = max(highest.get(space, 0), end)
    return highest


def unplanned(hivm: str) -> list[str]:
    """Buffers that were left without an address: what was to be in them is lost."""
    found = _ALLOC.findall(hivm)
    return [f"{len(found)} buffer(s) without an address in {', '.join(sorted(set(found)))}"] * bool(
        found
    )


def _address(names: str, constants: dict[str, int]) -> int:
    return max(constants[name.strip()] for name in names.split(","))


def _bytes(sizes: str, element: str) -> int:
    bits = int(re.search(r"\d+$", element)[0])
    return -(-prod(int(size) for size in sizes.split("x") if size) * bits // 8)
