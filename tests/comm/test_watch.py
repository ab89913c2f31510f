"""A collective that cannot complete says where it was and which ranks are missing."""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

from sglang_ascend.comm.straggler import StragglerMonitor, find_straggler
from sglang_ascend.comm.transport import CollectiveError, Where
from sglang_ascend.comm.watch import ANSWER_BOUND_S, GroupWatch
from tests.comm.rank_pool import RankPool

TIMEOUT_S = 2.0
LAST = 3


@pytest.fixture
def fragile_ranks():
    """Ranks of one test that breaks them."""
    pool = RankPool(4, worlds=(4,))
    yield pool
    pool.close()


def _gather(group, step):
    group.all_gather_rows(torch.ones(1, 2), [1] * 4, Where(step, 7, "dispatch"))


def _fault(group, faulty, fault):
    """Steps up to LAST, where the faulty rank does not come. The others tell what they saw."""
    store = dist.distributed_c10d._get_default_store()
    for step in range(LAST + 1):
        # Not earlier: the first steps also make connections.
        group.timeout_s = TIMEOUT_S if step == LAST else group.timeout_s
        if step == LAST and group.rank == faulty:
            if fault == "late":
                store.wait([f"raised {rank}" for rank in range(4) if rank != faulty])
                return None
            os.kill(os.getpid(), {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}[fault])
        try:
            _gather(group, step)
        except CollectiveError as error:
            store.set(f"raised {group.rank}", "1")
            return error.rank, error.where, error.missing, str(error)
    return "nothing happened"


@pytest.mark.parametrize(
    ("faulty", "fault", "reason"),
    [
        (0, "killed", f"gave no sign of life for {ANSWER_BOUND_S:.0f} s: its process is gone"),
        (2, "killed", f"gave no sign of life for {ANSWER_BOUND_S:.0f} s: its process is gone"),
        (2, "stopped", f"gave no sign of life for {ANSWER_BOUND_S:.0f} s: its process is gone"),
        (2, "late", f"has not come, it is busy after step {LAST - 1}, layer 7, dispatch"),
    ],
)
def test_missing_rank_is_named_by_all_others(fragile_ranks, faulty, fault, reason):
    for pipe in fragile_ranks.pipes:
        pipe.send((_fault, 4, (faulty, fault)))
    for rank in set(range(4)) - {faulty}:
        pipe = fragile_ranks.pipes[rank]
        # The bound: the timeout and the time for the others' answers, not minutes.
        assert pipe.poll(30), f"rank {rank} still waits"
        ok, (raised_by, where, missing, message) = pipe.recv()
        assert ok and raised_by == rank
        assert where == Where(LAST, 7, "dispatch") and missing == (faulty,)
        assert f"rank {rank} waited" in message
        assert f"at step {LAST}, layer 7, dispatch: rank {faulty} {reason}" in message


@pytest.fixture
def watches():
    store = dist.HashStore()
    made = [GroupWatch(store, rank, 3) for rank in range(3)]
    yield made
    for watch in made:
        watch.close()


def _explain(watch, error="timed out") -> CollectiveError:
    return watch.explain(9.0, RuntimeError(f"{error}\nmore lines"))


def test_ranks_in_another_collective(watches):
    for watch, operation in zip(watches, ("combine", "combine", "gather")):
        watch.position.enter(Where(1, 2, operation))
    error = _explain(watches[0])
    assert error.missing == (2,) and error.where == Where(1, 2, "combine")
    assert str(error) == (
        "rank 0 waited 9.0 s at step 1, layer 2, combine: rank 2 is in another collective, step 1,"
        " layer 2, gather; there: [0, 1]; the collective said: timed out"
    )


def test_a_rank_that_is_past_is_not_missing(watches):
    """It completed our collective and fails in the next one, because of us."""
    for watch in watches:
        watch.position.enter(Where(1, 2, "dispatch"))
    watches[1].position.leave()
    watches[1].position.enter(Where(1, 2, "combine"))
    error = _explain(watches[0])
    assert error.missing == ()
    assert "all ranks are there, the transport between them failed" in str(error)


def test_a_rank_that_has_left_and_not_come_back_is_busy(watches):
    for watch in watches:
        watch.position.enter(Where(1, 2, "dispatch"))
        watch.position.leave()
    watches[0].position.enter(Where(1, 2, "combine"))
    watches[1].position.enter(Where(1, 2, "combine"))
    error = _explain(watches[0])
    assert error.missing == (2,)
    assert "rank 2 has not come, it is busy after step 1, layer 2, dispatch" in str(error)


def test_without_the_store_the_error_says_so():
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    client = dist.TCPStore("127.0.0.1", server.port, is_master=False)
    watch = GroupWatch(client, 1, 2)
    watch.position.enter(Where(4, 0, "gather"))
    del server
    error = _explain(watch)
    assert error.missing == () and "at step 4, layer 0, gather" in str(error)
    assert "layer 0, gather: the group's store does not answer" in str(error)
    watch.close()


def _steps_with_a_slow_rank(group, slow):
    monitor = StragglerMonitor(group, every_steps=3)
    found = []
    for step in range(3):
        if group.rank == slow:
            time.sleep(0.4)
        _gather(group, step)
        found.append(monitor.step())
    return found


def test_a_slow_rank_is_named_by_all(ranks):
    answers = ranks.run(4, _steps_with_a_slow_rank, 2)
    assert all(answer == answers[0] for answer in answers)
    *before, named = answers[0]
    assert before == [None, None] and named.rank == 2
    assert "rank 2 falls behind: the others waited" in str(named)


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ([(0.5, 1.0)], None),
        ([(0.5, 1.0), (0.45, 1.0)], None),
        ([(0.5, 1.0), (0.1, 1.0)], (1, 0.4)),
        ([(0.0, 2.0), (0.9, 2.0), (0.1, 2.0), (1.0, 2.0)], (0, 0.45)),
        # One rank that waits long is no straggler: it is faster than the others.
        ([(0.05, 1.0), (0.9, 1.0), (0.06, 1.0), (0.07, 1.0)], None),
    ],
)
def test_who_is_a_straggler(windows, expected):
    found = find_straggler(windows, 0.1)
    if expected is None:
        assert found is None
    else:
        assert (found.rank, found.share) == pytest.approx(expected)
