"""The pictures of a report: a step's waterfall, a layer's time line, batch curves, the roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sglang_ascend.comm.layer_graph import Engine
from sglang_ascend.planner import schedule
from sglang_ascend.planner.device import Device
from sglang_ascend.planner.layer import LayerTime
from sglang_ascend.planner.step import StepTime
from sglang_ascend.planner.svg import (
    COLOURS,
    INK,
    Scale,
    axes,
    dot,
    line,
    path,
    picture,
    rect,
    text,
)

_WIDTH = 860
_LABELS = 170
_ROW = 26


def waterfall(step: StepTime) -> str:
    """Every part of a step, each beginning where the one before it ended."""
    rows = len(step.parts) + 1
    across = Scale(0, step.seconds * 1e3, _LABELS, _WIDTH - 110)
    parts, begin = [], 0.0
    for i, (name, seconds) in enumerate(step.parts.items()):
        y, share = 8 + i * _ROW, seconds / step.seconds
        x, end = across(begin * 1e3), across((begin + seconds) * 1e3)
        words = f"{seconds * 1e3:.2f} ms, {share:.0%}"
        parts += [
            text(_LABELS - 8, y + 14, name, "end"),
            rect(x, y, end - x, _ROW - 8, COLOURS[i % len(COLOURS)], f"{name}: {words}"),
            text(end + 6, y + 14, words, size=11),
        ]
        begin += seconds
    y = 8 + (rows - 1) * _ROW
    total = f"{step.seconds * 1e3:.1f} ms"
    parts += [
        text(_LABELS - 8, y + 14, "whole step", "end"),
        rect(across(0), y, across.end - across.start, _ROW - 8, INK, total),
        text(across.end + 6, y + 14, total, size=11),
    ]
    return picture(_WIDTH, 16 + rows * _ROW, "waterfall of one step", parts)


def time_line(layer: LayerTime) -> str:
    """Two layers, each engine and micro-batch on a row of its own."""
    placed = schedule.placed_stack(layer.nodes, layer.seconds, 2, layer.micro_batches)
    lanes = [(engine, b) for engine in Engine for b in range(layer.micro_batches)]
    end = max(p.end_s for p in placed)
    across = Scale(0, end * 1e6, 110, _WIDTH - 16)
    colours = {n.name: COLOURS[i % len(COLOURS)] for i, n in enumerate(layer.nodes)}
    base = 12 + len(lanes) * 46
    parts = []
    for value in across.ticks():
        x = across(value)
        parts += [line(x, 8, x, base), text(x, base + 16, f"{value:g}", "middle", 11)]
    for row, (engine, batch) in enumerate(lanes):
        name = engine.value + (f" {'AB'[batch]}" if layer.micro_batches > 1 else "")
        parts.append(text(102, 12 + row * 46 + 22, name, "end"))
    for one in placed:
        name, which, batch = one.node.name.split("/")
        y = 12 + lanes.index((one.node.engine, int(batch))) * 46
        x, width = across(one.start_s * 1e6), across(one.end_s * 1e6) - across(one.start_s * 1e6)
        words = f"{name}, layer {int(which) + 1}: {(one.end_s - one.start_s) * 1e6:.0f} us"
        parts.append(rect(x, y, width - 0.6, 32, colours[name], words))
        label = name.split("_", 1)[-1].replace("_", " ")  # which half of the layer, the place tells
        if width > 5.6 * len(label):
            parts.append(text(x + width / 2, y + 20, label, "middle", 10, "#fff"))
    parts.append(text((across.start + across.end) / 2, base + 34, "microseconds", "middle"))
    return picture(_WIDTH, base + 44, "time line of two layers", parts)


def batch_curves(
    rows: Sequence[tuple[float, float, float]], here: tuple[float, float], limit_ms: float | None
) -> str:
    """Throughput a card over TPOT, a dot for each batch.

    Args:
        rows: requests a rank, TPOT in ms, tokens a second and card.
        here: TPOT and throughput of the working point.
    """
    across = Scale(0, max(row[1] for row in rows) * 1.05, 70, _WIDTH - 20)
    up = Scale(0, max(row[2] for row in rows) * 1.12, 300, 34)
    parts = axes(across, up, "TPOT, ms", "output tokens/s a card")
    if limit_ms and limit_ms < across.high:
        x = across(limit_ms)
        parts += [line(x, 300, x, 34, COLOURS[5], 1.5), text(x + 5, 48, "limit", size=11)]
    parts.append(path([(across(t), up(v)) for _, t, v in rows], COLOURS[0]))
    for requests, tpot, value in rows:
        words = f"{requests:g} requests a rank: {tpot:.1f} ms, {value:.0f} tokens/s"
        parts += [dot(across(tpot), up(value), COLOURS[0], words, 3.5)]
        parts += [text(across(tpot), up(value) - 9, f"{requests:g}", "middle", 10)]
    parts.append(dot(across(here[0]), up(here[1]), COLOURS[5], "working point", 6))
    return picture(_WIDTH, 344, "throughput over time per output token", parts)


def roofline(layer: LayerTime, device: Device, dtypes: Sequence[str]) -> str:
    """Every kernel of a layer under the peaks of the hardware."""
    works = {n: w for n, w in layer.work.items() if w.flops and w.nbytes}
    bandwidth = device.hardware.si("memory.bandwidth")
    peaks = {dtype: device.hardware.operations_per_s(dtype) for dtype in dtypes}
    intensity = [w.flops / w.nbytes for w in works.values()]
    reached = [w.flops / w.seconds for w in works.values()]
    high = max(peaks.values())
    across = Scale(
        min(1.0, *intensity), max(2 * high / bandwidth, *intensity), 70, _WIDTH - 20, True
    )
    up = Scale(min(reached) / 2, high * 2, 320, 34, True)
    parts = axes(across, up, "operations a byte", "operations/s")
    for i, (dtype, peak) in enumerate(peaks.items()):
        knee = peak / bandwidth
        first = max(across.low, up.low / bandwidth)
        roof = [(across(first), up(first * bandwidth)), (across(knee), up(peak))]
        parts.append(path([*roof, (across(across.high), up(peak))], COLOURS[6 - i]))
        parts.append(text(_WIDTH - 24, up(peak) - 6, f"{dtype} peak", "end", 11))
    for i, (name, work) in enumerate(works.items()):
        x, y = across(work.flops / work.nbytes), up(work.flops / work.seconds)
        share = f"{work.flops / work.seconds / 1e12:.1f} T/s, {work.bound}-bound"
        parts += [dot(x, y, COLOURS[i % len(COLOURS)], f"{name}: {share}")]
        parts += [text(x + 7, y + 4, name, size=10)]
    return picture(_WIDTH, 362, "roofline of a layer's kernels", parts)


def stacked_bar(parts_by_name: Mapping[str, float], whole: float, unit: str) -> str:
    """What fills a whole, and what is left of it."""
    across, begin, drawn = Scale(0, whole, 10, _WIDTH - 10), 0.0, []
    entries = [*parts_by_name.items()]
    for i, (name, size) in enumerate(entries):
        x = across(begin)
        words = f"{name}: {size:.1f} {unit}"
        drawn.append(
            rect(x, 8, across(begin + size) - x - 0.6, 30, COLOURS[i % len(COLOURS)], words)
        )
        column, row = i % 4, i // 4
        drawn += [
            rect(10 + column * 212, 54 + row * 20, 11, 11, COLOURS[i % len(COLOURS)]),
            text(27 + column * 212, 64 + row * 20, words, size=11),
        ]
        begin += size
    height = 62 + 20 * ((len(entries) + 3) // 4)
    return picture(_WIDTH, height, "memory of one rank", drawn)


def tornado(rows: Sequence[tuple[str, float, float]], unit: str) -> str:
    """Constants by how far they move the answer, the widest first.

    Args:
        rows: name, change of the answer with the constant lower and with it higher, as shares.
    """
    most = max(max(abs(low), abs(high)) for _, low, high in rows) or 1.0
    across = Scale(-most, most, 270, _WIDTH - 60)
    parts = [line(across(0), 4, across(0), 12 + len(rows) * _ROW, INK)]
    for i, (name, low, high) in enumerate(rows):
        y = 8 + i * _ROW
        parts.append(text(205, y + 14, name.replace(".", " ").replace("_", " "), "end"))
        for change, colour, word in ((low, COLOURS[1], "lower"), (high, COLOURS[0], "higher")):
            x, zero = across(change), across(0)
            title = f"{name} {word}: {change:+.1%}"
            parts.append(rect(min(x, zero), y, abs(x - zero), _ROW - 8, colour, title))
            anchor, shift = ("end", -5) if change < 0 else ("start", 5)
            parts.append(text(x + shift, y + 14, f"{change:+.1%}", anchor, 10))
    y = 30 + len(rows) * _ROW
    parts.append(text(across(0), y, unit, "middle", 11))
    return picture(_WIDTH, y + 10, "how constants move the answer", parts)
