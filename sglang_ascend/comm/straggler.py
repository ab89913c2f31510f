"""Which rank the others wait for."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

import torch

from sglang_ascend.comm.transport import RankGroup
from sglang_ascend.comm.watch import Where


@dataclass(frozen=True)
class Straggler:
    """A rank that waits less than the others because they wait for it.

    Attributes:
        rank: the rank that falls behind.
        behind_s: how much less it waited in the window than the median of the others.
        share: behind_s over the length of the window.
    """

    rank: int
    behind_s: float
    share: float

    def __str__(self) -> str:
        return (
            f"rank {self.rank} falls behind: the others waited {self.behind_s:.3f} s for it,"
            f" {self.share:.0%} of the time"
        )


class StragglerMonitor:
    """Compares the ranks' waiting times at collectives every few steps, in lockstep.

    Waiting times are those of the host, so on the NPU, where collectives only enter a stream, they
    say nothing: use it on the reference device.
    """

    def __init__(self, group: RankGroup, every_steps: int = 100, share: float = 0.1):
        """share: part of the time that the others must have waited for a rank to be named."""
        self._group, self._every, self._share = group, every_steps, share
        self._steps = 0
        self._start()

    def _start(self) -> None:
        self._began, self._waited = time.perf_counter(), self._group.wait_s

    def step(self) -> Straggler | None:
        """Called by all ranks after each step; the same answer on all of them."""
        self._steps += 1
        if self._steps % self._every:
            return None
        mine = torch.tensor(
            [[self._group.wait_s - self._waited, time.perf_counter() - self._began]]
        )
        where = Where(self._steps, 0, "straggler monitor")
        windows = self._group.all_gather_rows(mine, [1] * self._group.size, where).tolist()
        self._start()
        return find_straggler(windows, self._share)


def find_straggler(windows: list[list[float]], share: float) -> Straggler | None:
    """The rank that waited least, if the others waited for it.

    windows: (seconds waited, seconds of the window) of each rank.
    """
    if len(windows) < 2:
        return None
    waits = [waited for waited, _ in windows]
    rank = waits.index(min(waits))
    behind_s = median(waits[:rank] + waits[rank + 1 :]) - waits[rank]
    length_s = median(length for _, length in windows)
    if behind_s <= share * length_s:
        return None
    return Straggler(rank, behind_s, behind_s / length_s)
