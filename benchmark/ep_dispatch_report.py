"""Summary, table and heat map of benchmark.ep_dispatch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from typing import Any

from sglang_ascend.comm.exchange_cost import bf16_shape, exchange
from sglang_ascend.comm.hardware import load_hardware
from sglang_ascend.comm.row_traffic import skewed_share
from sglang_ascend.comm.topology import Topology

#: Clusters of the reports: name, hardware, topology.
LARGE_SCALE = (
    ("A2, 4 nodes x 8 cards", "a2_910b_376t", Topology(4, 8)),
    ("CloudMatrix, 144 cards of 2 dies", "cm384_910c", Topology(18, 8, 2)),
)
LARGE_SCALE_TOKENS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 256)
LARGE_SCALE_SKEW = (1.0, 1.5, 2.0)
#: MoE layers of DeepSeek-V3, which share the choice of a step.
LAYERS = 58
_CELL, _ROW, _LEFT, _TOP = 66, 30, 120, 40


def regret(cell: dict[str, Any]) -> float:
    """How much longer a layer takes with auto than over the better transport; 0.05 is 5 %.

    Choosing happens once a step; a layer's share of it is included.
    """
    times = cell["median_s"]
    return (times[cell["choice"]] + cell["choose_s"] / LAYERS) / min(times.values()) - 1


def summary(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures that the benchmark is about."""
    regrets = sorted(regret(cell) for cell in cells)
    errors = sorted(
        abs(cell["predicted_s"][name] / cell["median_s"][name] - 1)
        for cell in cells
        for name in cell["median_s"]
    )
    return {
        "cells": len(cells),
        "auto_within_5_percent": sum(value <= 0.05 for value in regrets) / len(cells),
        "auto_worst": regrets[-1],
        "allgather_faster": sum(
            cell["median_s"]["allgather"] < cell["median_s"]["dispatch"] for cell in cells
        ),
        "always_allgather_worst": _worst_of(cells, "allgather"),
        "always_dispatch_worst": _worst_of(cells, "dispatch"),
        "prediction_error_median": errors[len(errors) // 2],
        "choose_us_median": sorted(cell["choose_s"] for cell in cells)[len(cells) // 2] * 1e6,
    }


def _worst_of(cells: list[dict[str, Any]], transport: str) -> float:
    return max(c["median_s"][transport] / min(c["median_s"].values()) - 1 for c in cells)


def large_scale() -> list[dict[str, Any]]:
    """Predicted times of a DeepSeek-V3 layer's exchange, INT8 to the experts and BF16 back."""
    shape = bf16_shape(7168, 8, 256, int8_wire=True)
    rows = []
    for name, hardware_name, topology in LARGE_SCALE:
        hardware, world = load_hardware(hardware_name), topology.world_size
        for skew in LARGE_SCALE_SKEW:
            for tokens in LARGE_SCALE_TOKENS:
                share = skewed_share(world, skew)
                costs = exchange(topology, hardware, [tokens] * world, shape, share)
                times = {transport: cost.seconds for transport, cost in costs.items()}
                choice = min(times, key=lambda transport: times[transport])
                rows.append(
                    {"cluster": name, "hardware": hardware_name, "tokens": tokens, "skew": skew,
                     "predicted_s": times, "choice": choice}
                )  # fmt: skip
    return rows


def table(cells: list[dict[str, Any]]) -> str:
    """Plain text, a line a cell."""
    lines = [
        f"{'nodes':>5} {'top-k':>5} {'routing':>8} {'tokens':>6} {'allgather':>10} {'dispatch':>10}"
        f" {'ratio':>6} {'auto':>9} {'regret':>7}"
    ]
    for cell in cells:
        times = cell["median_s"]
        lines.append(
            f"{cell['nodes']:>5} {cell['top_k']:>5} {cell['routing']:>8} {cell['tokens']:>6}"
            f" {times['allgather'] * 1e3:>7.2f} ms {times['dispatch'] * 1e3:>7.2f} ms"
            f" {times['dispatch'] / times['allgather']:>6.2f} {cell['choice']:>9}"
            f" {regret(cell):>6.1%}"
        )
    return "\n".join(lines)


def heat_map(cells: list[dict[str, Any]], predictions: list[dict[str, Any]], rates: str) -> str:
    """SVG: time of dispatch over that of allgather in every cell, measured, then predicted."""
    parts: list[str] = []
    y = 64
    for nodes, top_k in dict.fromkeys((cell["nodes"], cell["top_k"]) for cell in cells):
        chosen = [c for c in cells if (c["nodes"], c["top_k"]) == (nodes, top_k)]
        title = f"Measured: {nodes} node(s), top-{top_k} ({rates})"
        grid = [
            (c["routing"], c["tokens"], c["median_s"], c["choice"], regret(c) > 0.05)
            for c in chosen
        ]
        parts.append(_panel(y, title, grid))
        y += _TOP + _ROW * len({row for row, *_ in grid}) + 22
    for cluster in dict.fromkeys(row["cluster"] for row in predictions):
        grid = [
            (f"skew {r['skew']:g}", r["tokens"], r["predicted_s"], r["choice"], False)
            for r in predictions
            if r["cluster"] == cluster
        ]
        parts.append(_panel(y, f"Predicted, not measured: {cluster}, DeepSeek-V3 layer", grid))
        y += _TOP + _ROW * len(LARGE_SCALE_SKEW) + 22
    columns = max(len({c["tokens"] for c in cells}), len(LARGE_SCALE_TOKENS))
    width = _LEFT + _CELL * columns + 20
    heading = (
        '<text x="12" y="24" font-size="17" font-weight="bold">Time of Dispatch/Combine over time '
        "of AllGather/ReduceScatter</text>"
        '<text x="12" y="46" font-size="12">Blue: AllGather is faster. Orange: Dispatch is faster. '
        "A or D: what auto picked; red frame: more than 5 % slower than the better.</text>"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" '
        f'font-family="sans-serif"><rect width="100%" height="100%" fill="white"/>{heading}'
        f"{''.join(parts)}</svg>\n"
    )


def _panel(y: int, title: str, grid: Iterable[tuple[str, int, dict[str, float], str, bool]]) -> str:
    grid = list(grid)
    rows = list(dict.fromkeys(row for row, *_ in grid))
    columns = sorted({column for _, column, *_ in grid})
    parts = [f'<text x="12" y="{y + 14}" font-size="14" font-weight="bold">{escape(title)}</text>']
    parts += [
        f'<text x="{_LEFT + _CELL * i + _CELL // 2}" y="{y + _TOP - 6}" font-size="11" '
        f'text-anchor="middle">{column}</text>'
        for i, column in enumerate(columns)
    ]
    parts.append(f'<text x="12" y="{y + _TOP - 6}" font-size="11">tokens a rank</text>')
    parts += [
        f'<text x="12" y="{y + _TOP + _ROW * i + 19}" font-size="12">{escape(row)}</text>'
        for i, row in enumerate(rows)
    ]
    for row, column, times, choice, wrong in grid:
        ratio = times["dispatch"] / times["allgather"]
        left, top = _LEFT + _CELL * columns.index(column), y + _TOP + _ROW * rows.index(row)
        frame = ' stroke="#c00" stroke-width="3"' if wrong else ' stroke="white"'
        parts.append(
            f'<rect x="{left + 1}" y="{top + 1}" width="{_CELL - 2}" height="{_ROW - 2}" '
            f'fill="{_colour(ratio)}"{frame}><title>allgather {times["allgather"] * 1e3:.3f} ms, '
            f"dispatch {times['dispatch'] * 1e3:.3f} ms</title></rect>"
            f'<text x="{left + _CELL // 2}" y="{top + 20}" font-size="12" text-anchor="middle">'
            f"{ratio:.2f} {choice[0].upper()}</text>"
        )
    return "".join(parts)


def _colour(ratio: float) -> str:
    """White at equal times, full colour from a factor of two."""
    strength = min(1.0, abs(math.log2(ratio)))
    full = (66, 133, 244) if ratio > 1 else (244, 140, 40)
    mixed = (round(255 + (channel - 255) * 0.8 * strength) for channel in full)
    return f"rgb({','.join(map(str, mixed))})"
