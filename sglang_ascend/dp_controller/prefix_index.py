"""What one rank's prefix cache holds, as far as the controller can tell from what it sent there."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence


class PrefixIndex:
    """Least-recently-used set of prefix blocks, as large as the rank's KV pool.

    The rank's radix cache evicts the leaf that was unused for longest. Here every block of a
    request is touched from the last to the first, so that a block is never older than what hangs
    below it and the oldest entry is always a leaf: the same order of eviction. What a request
    generates takes room in the rank's pool, too, and is put in as blocks without a name.

    Entries are not told about evictions that other causes bring (requests that run longer than
    expected, retractions), hence "expected": a wrong entry costs one recomputed prefix.
    """

    def __init__(self, capacity_blocks: int) -> None:
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self._capacity = capacity_blocks
        self._unnamed = 0

    def __len__(self) -> int:
        return len(self._blocks)

    def resize(self, capacity_blocks: int) -> None:
        """Follow the size that the rank reports."""
        self._capacity = capacity_blocks
        self._evict()

    def match(self, chain: Sequence[int]) -> int:
        """Number of leading blocks that are held, by binary search: prefixes are held whole."""
        blocks = self._blocks
        if not chain or chain[0] not in blocks:
            return 0
        return bisect_left(chain, True, key=lambda block: block not in blocks)

    def insert(self, chain: Sequence[int], generated_blocks: int = 0) -> None:
        """Note that a prompt was sent to the rank and how much it is expected to generate."""
        blocks = self._blocks
        for _ in range(min(generated_blocks, self._capacity)):
            # Hashes of real blocks are integers; floats cannot be taken for one of them.
            self._unnamed += 1
            blocks[self._unnamed + 0.5] = None
        for block in reversed(chain):
            blocks[block] = None
            blocks.move_to_end(block)
        self._evict()

    def clear(self) -> None:
        """The rank's cache was flushed, or the rank is gone."""
        self._blocks.clear()

    def _evict(self) -> None:
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
