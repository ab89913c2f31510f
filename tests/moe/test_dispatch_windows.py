"""Two receive windows are enough, one is not: in every order of events, and in real processes."""

from __future__ import annotations

import time

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from sglang_ascend.ops.expert_parallel import ExpertParallel
from sglang_ascend.ops.moe_distribute_combine import moe_distribute_combine
from sglang_ascend.ops.moe_distribute_dispatch import moe_distribute_dispatch
from sglang_ascend.ops.windows import Windows
from tests.moe import window_simulator as simulator
from tests.moe.dispatch_cases import WIDTH, Where


def _explore(ranks: int, operators: int, windows: int) -> str:
    """Visit every reachable state; the first thing that goes wrong, or nothing."""
    first = simulator.start(ranks, windows)
    seen, open_states = {first}, [first]
    while open_states:
        state = open_states.pop()
        if windows > 1:
            assert simulator.spread(state) <= 1, "operator n + 2 began before n ended everywhere"
        possible = simulator.actions(state, operators, windows)
        if not possible and not simulator.is_done(state, operators):
            return "deadlock"
        for action in possible:
            try:
                after = action()
            except simulator.Corruption as error:
                return str(error)
            if after not in seen:
                seen.add(after)
                open_states.append(after)
    return ""


@pytest.mark.parametrize(("ranks", "operators"), [(2, 6), (3, 3)])
def test_two_windows_are_safe_in_every_order(ranks, operators):
    assert _explore(ranks, operators, windows=2) == ""


def test_one_window_is_not():
    """A message of the next operator overwrites one, or its flag, that a rank still waits for."""
    assert _explore(2, 2, windows=1) != ""


@settings(max_examples=80, deadline=None, derandomize=True)
@given(ranks=st.integers(2, 5), choices=st.randoms(use_true_random=False))
def test_two_windows_are_safe_in_long_runs(ranks, choices):
    operators = 8
    state = simulator.start(ranks, 2)
    while not simulator.is_done(state, operators):
        assert simulator.spread(state) <= 1
        state = choices.choice(simulator.actions(state, operators, 2))()


class OneSided:
    """Windows in a shared file that the other rank writes into, as the NPU's ranks do."""

    def __init__(self, path: str, rank: int, windows: int):
        cells = np.memmap(path, np.int64, "r+")
        # Of each rank, window and source: payload and flag. Two more cells steer the test.
        self._cells, self.steps = cells[:-2].reshape(2, windows, 2, 2), cells[-2:]
        self._rank, self._windows = rank, windows

    def send(self, operator: int) -> None:
        for target in range(2):
            cell = self._cells[target, operator % self._windows, self._rank]
            cell[0], cell[1] = operator * 10 + self._rank, operator

    def wait(self, operator: int) -> None:
        flags = self._cells[self._rank, operator % self._windows, :, 1]
        _until(lambda: bool((flags == operator).all()))

    def read(self, operator: int) -> list[int]:
        return self._cells[self._rank, operator % self._windows, :, 0].tolist()


def _until(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _fast_and_slow(group, path, windows):
    """Operators 1 and 2. Rank 1 reads the first only after rank 0 has sent the second."""
    mine = OneSided(path, group.rank, windows)
    mine.send(1)
    mine.wait(1)
    if group.rank == 0:
        seen = mine.read(1)
        mine.steps[0] = 1
        _until(lambda: mine.steps[1] == 1)
        mine.send(2)
        mine.steps[0] = 2
        return seen
    _until(lambda: mine.steps[0] == 1)
    mine.steps[1] = 1
    _until(lambda: mine.steps[0] == 2)
    return mine.read(1)


@pytest.mark.parametrize(("windows", "seen_by_slow"), [(2, [10, 11]), (1, [20, 11])])
def test_a_fast_rank_overwrites_a_single_window(ranks, tmp_path, windows, seen_by_slow):
    path = tmp_path / "windows"
    np.zeros(2 * windows * 4 + 2, np.int64).tofile(path)
    fast, slow = ranks.run(2, _fast_and_slow, str(path), windows)
    assert fast == [10, 11] and slow == seen_by_slow


class _Kept(Windows):
    """Windows that remember what was taken, as a late reader would."""

    def __init__(self, *count):
        super().__init__(*count)
        self.taken = []

    def take(self, rows, width):
        self.taken.append(super().take(rows, width))
        return self.taken[-1]


def _late_reader(group, count):
    """What the window of the first dispatch holds after each of the operators behind it."""
    windows = _Kept(*count)
    ep = ExpertParallel(group, slots=4, eager_bytes=0, windows=windows)
    ids = torch.tensor([[0, 3]], dtype=torch.int32)
    counts, where = (1, 1), Where(0, 0, "late reader")
    seen = []
    for value in (1.0, 2.0):
        arguments = (torch.full((1, WIDTH), value), ids, torch.ones(1, 2))
        rows, _, _, state = moe_distribute_dispatch(*arguments, ep, counts, False, where)
        seen.append(windows.taken[0].view(torch.float32).unique().tolist())
        moe_distribute_combine(rows * 10, *arguments[1:], state, ep, counts, where)
        seen.append(windows.taken[0].view(torch.float32).unique().tolist())
    return seen


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        # Operators: dispatch, combine, dispatch, combine.
        ((), [[1.0], [1.0], [2.0], [2.0]]),
        ((1,), [[1.0], [10.0], [2.0], [20.0]]),
    ],
)
def test_a_late_reader_sees_a_later_operator(ranks, count, expected):
    """With the usual two, the next operator leaves the payload alone; with one, it does not."""
    for seen in ranks.run(2, _late_reader, count):
        assert seen == expected
