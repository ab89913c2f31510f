"""Receive windows that several operators take in turn, as the NPU's dispatch and combine do."""

from __future__ import annotations

import torch


class Windows:
    """Receive buffers of one group of ranks, one after the other; two make reuse safe.

    Operator N of a group receives into window N mod 2. A rank leaves operator N only when the data
    of all others has arrived, so nobody can start N + 2, and write over window N, before everybody
    has left N. With one window, a fast rank's N + 1 would land where a slow rank still reads N.
    Whoever keeps a window longer than that reads another operator's data.

    Source: CANN ops-transformer, design notes of MoeDistributeDispatch and MoeDistributeCombine.
    """

    def __init__(self, count: int = 2):
        self._buffers = [torch.empty(0, dtype=torch.uint8) for _ in range(count)]
        self._next = 0

    def take(self, rows: int, width: int) -> torch.Tensor:
        """The next window as [rows, width] uint8, valid until it is taken again."""
        index = self._next
        self._next = (index + 1) % len(self._buffers)
        if self._buffers[index].numel() < rows * width:
            self._buffers[index] = torch.empty(rows * width, dtype=torch.uint8)
        return self._buffers[index][: rows * width].view(rows, width)
