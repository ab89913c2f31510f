"""What a failed collective says: which rank waited for whom, and where the missing ones are.

Each rank keeps its position (the collective that it is in or has left) in memory, which costs two
assignments a collective. When one fails, the rank raises an alarm in the group's store; a thread of
every rank that is alive answers it with the position of its rank. So a rank that is gone, one that
is still computing and one that is in another collective are told apart, within a bound, even where
the others notice at different times.
"""

from __future__ import annotations

import json
import threading
import time
import weakref
from dataclasses import asdict, dataclass
from datetime import timedelta

import torch.distributed as dist

_ALARM = "alarm"
POLL_S = 0.5
# Longest time that a failed rank waits for the answers of the others.
ANSWER_BOUND_S = 8 * POLL_S


@dataclass(frozen=True, slots=True)
class Where:
    """The place of a collective in the model: part of every error that it can raise.

    layer: None for a collective outside the layers.
    """

    step: int
    layer: int | None
    operation: str

    def at(self, operation: str) -> Where:
        """The same step and layer, in one of its operations."""
        return Where(self.step, self.layer, operation)

    def __str__(self) -> str:
        layer = "" if self.layer is None else f"layer {self.layer}, "
        return f"step {self.step}, {layer}{self.operation}"


class CollectiveError(RuntimeError):
    """A collective did not complete: a rank is late, dead, or in another collective.

    The group is of no more use. Gloo waits for the ranks of an open collective when a process ends
    regularly, so end it with a signal, as SGLang ends its schedulers, or with os._exit.

    Attributes:
        rank: the rank that raises.
        where: the collective that it was in.
        missing: the ranks that did not arrive there; empty if all did and the transport failed.
    """

    def __init__(self, rank: int, where: Where, missing: tuple[int, ...], message: str):
        super().__init__(message)
        self.rank = rank
        self.where = where
        self.missing = missing


class Position:
    """How many collectives this rank has entered, the last of them, and whether it has left it."""

    def __init__(self) -> None:
        self.entered = 0
        self.where = Where(0, 0, "start")
        self.inside = False

    def enter(self, where: Where) -> None:
        self.where = where
        self.entered += 1
        self.inside = True

    def leave(self) -> None:
        self.inside = False

    def note(self) -> str:
        return json.dumps(
            {"entered": self.entered, "inside": self.inside, "where": asdict(self.where)}
        )


class GroupWatch:
    """Answers alarms for one rank of a group, and asks the others when a collective has failed.

    Its thread looks into the store every POLL_S seconds; it ends with the object or the process.
    """

    def __init__(self, store: dist.Store, rank: int, size: int):
        self.position = Position()
        self._store = store
        self._rank, self._size = rank, size
        stop = threading.Event()
        thread = threading.Thread(
            target=_answer_alarms,
            args=(store, rank, self.position, stop),
            name="collective-watch",
            daemon=True,
        )
        thread.start()
        self.close = weakref.finalize(self, _stop, stop, thread)

    def explain(self, waited_s: float, error: RuntimeError) -> CollectiveError:
        """The error to raise for a failed collective, after at most ANSWER_BOUND_S more seconds."""
        rank, where = self._rank, self.position.where
        waited = f"rank {rank} waited {waited_s:.1f} s at {where}"
        said = f"the collective said: {_line(error)}"
        try:
            notes = self._ask()
        except (RuntimeError, OSError) as gone:
            reason = (
                f"the group's store does not answer ({_line(gone)}): the process that keeps it,"
                " usually that of rank 0, is gone"
            )
            return CollectiveError(rank, where, (), f"{waited}: {reason}; {said}")
        peers = [peer for peer in range(self._size) if peer != rank]
        absences = {peer: self._absence(notes.get(peer)) for peer in peers}
        missing = tuple(peer for peer, reason in absences.items() if reason)
        there = [peer for peer in range(self._size) if peer not in missing]
        reason = "; ".join(f"rank {peer} {absences[peer]}" for peer in missing)
        reason = reason or "all ranks are there, the transport between them failed"
        return CollectiveError(rank, where, missing, f"{waited}: {reason}; there: {there}; {said}")

    def _ask(self) -> dict[int, dict]:
        self._store.set(f"note/{self._rank}", self.position.note())
        self._store.set(_ALARM, "1")
        deadline = time.monotonic() + ANSWER_BOUND_S
        waiting = set(range(self._size)) - {self._rank}
        while waiting and time.monotonic() < deadline:
            waiting = {peer for peer in waiting if not self._store.check([f"note/{peer}"])}
            time.sleep(POLL_S / 10)
        return {
            peer: json.loads(self._store.get(f"note/{peer}"))
            for peer in range(self._size)
            if peer not in waiting and peer != self._rank
        }

    def _absence(self, note: dict | None) -> str:
        """Why a rank with this note is not in our collective; empty if it is, or was."""
        if note is None:
            bound = f"{ANSWER_BOUND_S:.0f} s"
            return f"gave no sign of life for {bound}: its process is gone or stopped"
        mine, count = self.position, note["entered"]
        theirs = Where(**note["where"])
        if count > mine.entered or (count == mine.entered and theirs == mine.where):
            return ""
        if note["inside"]:
            return f"is in another collective, {theirs}"
        return f"has not come, it is busy after {theirs}"


def group_watch(process_group: dist.ProcessGroup, index: int) -> GroupWatch:
    """A watch over the store that the group was made from.

    index: tells watches over one process group apart; the same number on all ranks.
    """
    store = dist.distributed_c10d._get_default_store().clone()
    prefix = f"sglang_ascend/watch/{process_group.group_name}/{index}"
    store.set_timeout(timedelta(seconds=ANSWER_BOUND_S))
    return GroupWatch(dist.PrefixStore(prefix, store), process_group.rank(), process_group.size())


def _answer_alarms(store, rank: int, position: Position, stop: threading.Event) -> None:
    while not stop.wait(POLL_S):
        try:
            if store.check([_ALARM]):
                store.set(f"note/{rank}", position.note())
        except RuntimeError:
            # The store is gone. Our rank will notice in its next collective, and say so.
            return


def _stop(stop: threading.Event, thread: threading.Thread) -> None:
    stop.set()
    thread.join(timeout=2 * POLL_S)


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
