"""How well the model does: leave-one-out, leave-a-family-out and held-out points, as plain data."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sglang_ascend.planner import constants, fit, published
from sglang_ascend.planner.published import Point

FILE = Path(__file__).with_name("evaluation.json")
#: Points that stand or fall together: one machine doing one thing.
FAMILIES = ("a2_decode", "a2_prefill", "allreduce", "flashcomm", "cm384_decode", "cm384_prefill")


def family(point: Point) -> str:
    """The family of a point; dispatch and combine are one."""
    return next((name for name in FAMILIES if point.name.startswith(name)), "exchange")


def run(progress: Callable[[str, int, int], None] = lambda *args: None) -> dict[str, Any]:
    """Refit for every left-out point and family; takes minutes."""
    points = published.points()
    alone = fit.leave_out(
        points, [[p] for p in points], lambda i, n: progress("leave one out", i, n)
    )
    names = list(dict.fromkeys(map(family, points)))
    groups = [[p for p in points if family(p) == name] for name in names]
    together = fit.leave_out(points, groups, lambda i, n: progress("leave family out", i, n))
    own = constants.default()
    return {
        "constants": {name: getattr(own, name) for name in fit.PRIOR},
        "leave_one_out": _rows(alone),
        "leave_family_out": _rows(together),
        "held_out": held_out(),
    }


def held_out() -> list[dict[str, Any]]:
    """Points that nothing was fitted on."""
    rows = []
    for point in published.points(published.HELD_OUT):
        predicted = published.predict(point, constants.default())
        rows.append(_row(point, predicted))
    return rows


def _rows(judged: tuple[fit.Judged, ...]) -> list[dict[str, Any]]:
    return [
        {**_row(one.point, one.predicted), "fitted_error": round(one.fitted_error, 5)}
        for one in judged
    ]


def _row(point: Point, predicted: float) -> dict[str, Any]:
    return {
        "point": point.name,
        "published": point.value,
        "predicted": round(predicted, 1),
        "error": round(predicted / point.value - 1, 5),
    }


def summary(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """Median and worst absolute error."""
    errors = [abs(row["error"]) for row in rows]
    return statistics.median(errors), max(errors)


def read() -> dict[str, Any]:
    """The evaluation that was last written."""
    return json.loads(FILE.read_text())


def write(content: dict[str, Any]) -> None:
    FILE.write_text(json.dumps(content, indent=1) + "\n")
