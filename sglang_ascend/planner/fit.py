"""Fit the planner's free constants on published points, and judge them by leaving points out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sglang_ascend.planner import constants, published
from sglang_ascend.planner.constants import Constants
from sglang_ascend.planner.published import Point

#: Where a fitted constant is expected without any of the points, in SI units.
PRIOR: Mapping[str, float] = {
    "compute_efficiency": 0.80,  # INT8 matrix products reach 77 to 83 % (arXiv 2506.12708)
    "memory_efficiency": 0.80,  # MLA decode reaches 84 % (same); msmodeling assumes 60 %
    "link_efficiency": 0.70,  # Ascend/msmodeling default
    "prefill_attention_efficiency": 0.55,  # the A2 report's decode figure
    "expert_skew": 0.30,  # placed experts within a third of their mean
    "dispatch_row": 0.1e-6,  # some 5 us a row on each of 48 vector cores
    "peer_poll": 0.1e-6,
}
#: A constant a factor of e off its prior weighs as much as one point that is 10 % off.
_PRIOR_WEIGHT = 0.1
_STEPS, _DIFFERENCE, _DONE = 10, 1e-3, 1e-3
#: FlashMLA's memory-bound kernel reaches 89.6 % of bandwidth (arXiv 2506.12708); nothing does more.
_LARGEST = {name: 0.9 for name in PRIOR if name.endswith("efficiency")}


@dataclass(frozen=True)
class Judged:
    """A point predicted with constants that never saw it.

    Attributes:
        predicted: by the constants fitted on all other points.
        error: predicted / published - 1.
        fitted_error: the same with the constants fitted on all points.
    """

    point: Point
    predicted: float
    fitted_error: float

    @property
    def error(self) -> float:
        return self.predicted / self.point.value - 1


class _Problem:
    """Squared relative errors over all points, priors included, as a function of log-constants."""

    def __init__(self, points: Sequence[Point], base: Constants):
        self.points = tuple(points)
        self.base = base
        self.names = list(PRIOR)
        self._prior = np.log([PRIOR[name] for name in self.names])
        self.highest = np.log([_LARGEST.get(name, 1e9) for name in self.names])
        self._target = np.log([point.value for point in points])

    def start(self) -> np.ndarray:
        return np.log([getattr(self.base, name) for name in self.names])

    def constants(self, logs: np.ndarray) -> Constants:
        values = {n: float(np.exp(v)) for n, v in zip(self.names, logs)}
        return self.base.changed(values)

    def residuals(self, logs: np.ndarray, skip: frozenset[int] = frozenset()) -> np.ndarray:
        """Of every point, 0 for those to skip, then of every prior."""
        own = self.constants(logs)
        errors = np.array(
            [
                0.0 if i in skip else np.log(published.predict(point, own)) - self._target[i]
                for i, point in enumerate(self.points)
            ]
        )
        return np.concatenate([errors, _PRIOR_WEIGHT * (logs - self._prior)])

    def slopes(self, logs: np.ndarray, current: np.ndarray) -> np.ndarray:
        columns = []
        for j in range(len(self.names)):
            moved = logs.copy()
            moved[j] -= _DIFFERENCE
            columns.append((current - self.residuals(moved)) / _DIFFERENCE)
        return np.stack(columns, axis=1)


def fit(points: Sequence[Point], start: Constants | None = None) -> Constants:
    """Refit the free constants: those with the smallest squared relative errors, priors included.

    Damped Gauss-Newton on logarithms of constants and of predictions.
    """
    problem = _Problem(points, start or constants.default())
    logs = problem.start()
    current = problem.residuals(logs)
    for _ in range(_STEPS):
        slopes = problem.slopes(logs, current)
        before = current @ current
        logs, current = _descend(problem, logs, current, slopes, frozenset(), steps=3)
        if before - current @ current < _DONE * before:
            break
    return problem.constants(logs)


def _descend(
    problem: _Problem,
    logs: np.ndarray,
    current: np.ndarray,
    slopes: np.ndarray,
    skip: frozenset[int],
    steps: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Steps with the slopes as they are; only those that lower the error are taken."""
    slopes = slopes.copy()
    slopes[list(skip)] = 0.0
    damping = 1e-3
    for _ in range(steps):
        # A constant at its bound takes no part in a step that would push it further.
        free = ~((logs >= problem.highest - 1e-9) & (slopes.T @ current < 0))
        part = slopes[:, free]
        normal = part.T @ part
        held = normal + damping * np.diag(np.diag(normal) + 1e-9)
        move = np.zeros(len(logs))
        move[free] = np.clip(np.linalg.solve(held, -part.T @ current), -0.5, 0.5)
        there = np.minimum(logs + move, problem.highest)
        candidate = problem.residuals(there, skip)
        gain = 1 - (candidate @ candidate) / (current @ current)
        if gain > 0:
            logs, current = there, candidate
        else:
            damping = max(damping, 1e-2) * 30
        if 0 <= gain < _DONE:
            break
    return logs, current


def leave_out(
    points: Sequence[Point],
    groups: Sequence[Sequence[Point]],
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> tuple[Judged, ...]:
    """Refit without each group of points in turn and predict its points.

    Each refit starts from the constants fitted on all points and keeps their slopes, while errors
    are those of the model itself at every step.

    Args:
        groups: one point each for leave-one-out.
    """
    problem = _Problem(points, constants.default())
    start = problem.start()
    everything = problem.residuals(start)
    slopes = problem.slopes(start, everything)
    judged = []
    for done, group in enumerate(groups):
        skip = frozenset(i for i, point in enumerate(points) if point in group)
        current = everything.copy()
        current[list(skip)] = 0.0
        logs, _ = _descend(problem, start, current, slopes, skip, steps=6)
        own = problem.constants(logs)
        for i in sorted(skip):
            fitted_error = float(np.exp(everything[i]) - 1)
            judged.append(Judged(points[i], published.predict(points[i], own), fitted_error))
        progress(done + 1, len(groups))
    return tuple(judged)
