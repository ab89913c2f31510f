"""Bytes that this rank has sent by operation and link class: every communication claim reads it."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from sglang_ascend.comm.topology import LinkClass


@dataclass
class Traffic:
    """What one operation has sent over one class of link."""

    nbytes: int = 0
    messages: int = 0


class ByteLedger:
    """Counts bytes where they are sent; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._traffic: dict[tuple[str, LinkClass], Traffic] = {}

    def record(self, operation: str, link: LinkClass, nbytes: int, count: int = 1) -> None:
        """Add `count` messages of together `nbytes` bytes."""
        with self._lock:
            entry = self._traffic.get((operation, link))
            if entry is None:
                entry = self._traffic[operation, link] = Traffic()
            entry.nbytes += nbytes
            entry.messages += count

    def snapshot(self) -> dict[tuple[str, LinkClass], Traffic]:
        """A copy of the counts so far by (operation, link class)."""
        with self._lock:
            return {
                key: Traffic(entry.nbytes, entry.messages) for key, entry in self._traffic.items()
            }

    def bytes_by_link(self) -> dict[LinkClass, int]:
        """Bytes so far by link class, over all operations."""
        totals = dict.fromkeys(LinkClass, 0)
        for (_, link), entry in self.snapshot().items():
            totals[link] += entry.nbytes
        return totals

    def reset(self) -> None:
        with self._lock:
            self._traffic.clear()
