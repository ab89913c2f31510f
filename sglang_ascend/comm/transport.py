"""Collectives over ragged rows, with every byte counted by link class and every wait bounded.

Gloo (the reference device) runs all of them as one exchange between all pairs of ranks: exact
rows, no padding, one message to each peer. Gloo's own all-gather is a ring of world - 1 dependent
steps, and its reduce-scatter an all-reduce of everything. Measured on loopback with 8 KiB a rank:
all-gather 1.5 times as fast as gloo's at four ranks and equal at two, reduce-scatter 4 and 1.6
times as fast.

Other backends (HCCL) run their equal-size collectives, on rows padded to the longest rank's where
ranks differ. Bytes are counted as in a full mesh (each chunk once to each peer), which is what
one-level algorithms send; a hierarchical algorithm sends less between nodes.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property
from math import prod

import torch
import torch.distributed as dist

from sglang_ascend.comm.ledger import ByteLedger
from sglang_ascend.comm.topology import Topology
from sglang_ascend.comm.watch import CollectiveError, GroupWatch, Where, group_watch
from sglang_ascend.errors import ConfigError

__all__ = ["CollectiveError", "RankGroup", "Where"]

_groups_made: dict[str, itertools.count] = defaultdict(itertools.count)


class RankGroup:
    """The ranks of one process group, where they live, and what they have sent.

    All ranks make their RankGroups of one process group in the same order.

    Attributes:
        rank, size: this rank in the group, and the number of ranks.
        ledger: bytes sent by this rank.
        exact_rows: whether all-gather and reduce-scatter send the rows that there are (on gloo), or
            equally many from each rank, padded.
        timeout_s: longest wait in one collective.
        wait_s: seconds that this rank has spent in collectives so far.
    """

    def __init__(
        self,
        process_group: dist.ProcessGroup,
        topology: Topology,
        ledger: ByteLedger | None = None,
        timeout_s: float = 300.0,
    ):
        if process_group.size() != topology.world_size:
            raise ConfigError(
                f"the group has {process_group.size()} ranks, the topology {topology.world_size} "
                f"({topology}); declare the topology of exactly these ranks"
            )
        self.process_group = process_group
        self.topology = topology
        self.ledger = ByteLedger() if ledger is None else ledger
        self.rank, self.size = process_group.rank(), process_group.size()
        self.wait_s = 0.0
        self._links = [topology.link(self.rank, peer) for peer in range(self.size)]
        self.timeout_s = timeout_s
        self._index = next(_groups_made[process_group.group_name])
        self._gloo = dist.get_backend(process_group) == "gloo"
        self.exact_rows = self._gloo

    def all_gather_rows(self, x: torch.Tensor, counts: Sequence[int], where: Where) -> torch.Tensor:
        """x [counts[rank], ...] of every rank -> [sum(counts), ...] in rank order, on all ranks."""
        rows = _as_bytes(x)
        if self.exact_rows:
            sent = torch.cat((rows,) * self.size)
            out = self._exchange(sent, [len(x)] * self.size, counts, where)
        else:
            out = self._gather_padded(rows, counts, where)
        return _like(out, x)

    def reduce_scatter_rows(
        self, x: torch.Tensor, counts: Sequence[int], where: Where
    ) -> torch.Tensor:
        """x [sum(counts), h] of every rank -> this rank's rows of their sum [counts[rank], h].

        The sum is taken in float32 in rank order on gloo, and rounded once to the dtype of x.
        """
        mine = counts[self.rank]
        if self.exact_rows:
            out = self._exchange(_as_bytes(x), counts, [mine] * self.size, where)
            summands = _like(out, x).view(self.size, mine, x.shape[1])
            return summands.sum(0, dtype=torch.float32).to(x.dtype)
        return self._reduce_scatter_padded(x, counts, where)

    def all_to_all_rows(
        self,
        x: torch.Tensor,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        where: Where,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """x [sum(send_counts), ...] by target rank -> [sum(recv_counts), ...] by source rank.

        out: uint8 [sum(recv_counts), bytes of a row] to receive in; the result is a view of it.
        """
        return _like(self._exchange(_as_bytes(x), send_counts, recv_counts, where, out), x)

    def _exchange(self, rows, send_counts, recv_counts, where, out=None) -> torch.Tensor:
        """Byte rows [n, width] to all ranks at once."""
        width = rows.shape[1]
        if out is None:
            out = rows.new_empty(sum(recv_counts), width)
        self._run(
            where,
            lambda: self.process_group.alltoall_base(
                out, rows, list(recv_counts), list(send_counts)
            ),
        )
        self._record(where, [count * width for count in send_counts])
        return out

    def _gather_padded(self, rows, counts, where) -> torch.Tensor:
        longest, width = max(counts), rows.shape[1]
        padded = _pad(rows, longest)
        out = rows.new_empty(self.size * longest, width)
        self._run(where, lambda: self.process_group._allgather_base(out, padded))
        self._record(where, [longest * width] * self.size)
        if min(counts) == longest:
            return out
        return torch.cat([part[:count] for part, count in zip(out.chunk(self.size), counts)])

    def _reduce_scatter_padded(self, x, counts, where) -> torch.Tensor:
        longest, width = max(counts), x.shape[1]
        padded = x
        if min(counts) < longest:
            padded = torch.cat([_pad(part, longest) for part in x.split(list(counts))])
        out = x.new_empty(longest, width)
        self._run(where, lambda: self.process_group._reduce_scatter_base(out, padded))
        self._record(where, [longest * width * x.element_size()] * self.size)
        return out[: counts[self.rank]]

    def _run(self, where: Where, start) -> None:
        """Start a collective and wait for it, at most the timeout.

        Raises:
            CollectiveError: it failed or took too long; within ANSWER_BOUND_S of that.
        """
        if not self._gloo:
            # Only enters the stream: HCCL's own watchdog bounds the wait.
            start().wait()
            return
        watch, began = self.watch, time.perf_counter()
        watch.position.enter(where)
        try:
            start().wait(timedelta(seconds=self.timeout_s))
        except RuntimeError as error:
            raise watch.explain(time.perf_counter() - began, error) from error
        watch.position.leave()
        self.wait_s += time.perf_counter() - began

    @cached_property
    def watch(self) -> GroupWatch:
        return group_watch(self.process_group, self._index)

    def _record(self, where: Where, nbytes: Sequence[int]) -> None:
        for link, size in zip(self._links, nbytes):
            if size:
                self.ledger.record(where.operation, link, size)


def _as_bytes(x: torch.Tensor) -> torch.Tensor:
    """x [n, ...] as [n, bytes of a row] uint8: gloo moves every dtype alike."""
    return x.reshape(len(x), prod(x.shape[1:])).contiguous().view(torch.uint8)


def _like(rows: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return rows.view(x.dtype).view(len(rows), *x.shape[1:])


def _pad(rows: torch.Tensor, length: int) -> torch.Tensor:
    if len(rows) == length:
        return rows
    padded = rows.new_zeros(length, rows.shape[1])
    padded[: len(rows)] = rows
    return padded
