"""Ranks that step together: bounded waits, errors that name the missing rank, and stragglers.

SGLang synchronises its DP-attention groups before every step. A rank that dies or hangs shows in
that exchange or in a collective of the model, where gloo and HCCL say neither who is missing nor
in which step.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from sglang_ascend.comm.straggler import StragglerMonitor
from sglang_ascend.comm.topology import Topology
from sglang_ascend.comm.transport import RankGroup
from sglang_ascend.comm.watch import CollectiveError, Where

logger = logging.getLogger(__name__)

#: Longest sleep of an idle rank whose neighbours may have got a request meanwhile.
_IDLE_POLL_MS = 10
_LIBRARIES = ("gloo", "hccl", "c10d")


class Lockstep:
    """The scheduler ranks of one model copy, and the step that this one is in."""

    def __init__(self, process_group, nodes: int, steps_between_reports: int = 500) -> None:
        size = process_group.size()
        self.group = RankGroup(process_group, Topology(nodes, size // nodes))
        self._monitor = StragglerMonitor(self.group, steps_between_reports)
        self._step = 0
        # Makes the watch, whose thread has to answer for this rank from now on.
        self._enter("start")

    def exchange(self, original, *args, **kwargs) -> None:
        """Run SGLang's exchange before a step, noting where this rank is and how long it waits."""
        self._step += 1
        self._enter("batch synchronisation")
        began = time.perf_counter()
        original(*args, **kwargs)
        self.group.wait_s += time.perf_counter() - began
        straggler = self._monitor.step()
        if straggler is not None and self.group.rank == 0:
            logger.warning("%s (up to step %d)", straggler, self._step)
        self._enter("model step")

    def explain(self, error: RuntimeError) -> CollectiveError:
        """What a failed collective of SGLang means: who is missing, and where this rank waited."""
        return self.group.watch.explain(time.monotonic() - self._since, error)

    def _enter(self, operation: str) -> None:
        self.group.watch.position.enter(Where(self._step, None, operation))
        self._since = time.monotonic()


def bound_waits(timeout_s: float) -> None:
    """Give every gloo group of this process a timeout; SGLang makes its own with two hours."""
    for group in c10d._world.pg_map:
        if dist.get_backend(group) == "gloo":
            c10d._set_pg_timeout(timedelta(seconds=timeout_s), group)


_lockstep: Lockstep | None = None


def event_loop(original, scheduler) -> None:
    """Around ``scheduler.dispatch_event_loop``: a collective that fails says what happened."""
    from sglang.srt.runtime_context import get_parallel

    global _lockstep
    parallel = get_parallel()
    if parallel.tp_size == 1:
        return original(scheduler)
    _lockstep = Lockstep(parallel.tp_group.cpu_group, parallel.nnodes)
    bound_waits(parallel.dist_timeout)
    try:
        original(scheduler)
    except CollectiveError:
        raise
    except RuntimeError as error:
        if any(library in str(error).lower() for library in _LIBRARIES):
            raise _lockstep.explain(error) from error
        raise


def exchange_rows(original, *args, **kwargs) -> None:
    """Around ``dp_attn.exchange_sync_rows``: see ``Lockstep.exchange``."""
    if _lockstep is None:
        # Before the event loop, at warm-up.
        return original(*args, **kwargs)
    _lockstep.exchange(original, *args, **kwargs)


def idle_sleep(original, sleeper) -> None:
    """Around ``IdleSleeper.maybe_sleep``: ranks that step together wake up together.

    Each rank sleeps on its own sockets, and the first one to get a request waits for the others.
    """
    if _lockstep is None:
        return original(sleeper)
    sleeper.poller.poll(_IDLE_POLL_MS)
