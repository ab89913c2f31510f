"""Drawing by hand: the few SVG elements that the reports need, and scales for their axes."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

#: Told apart also by readers who do not see all colours (Okabe and Ito).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8A8A8A", "#B8A000")
INK, FAINT = "var(--ink)", "var(--faint)"


def text(x: float, y: float, words: str, anchor: str = "start", size: int = 12, fill: str = INK):
    """A line of text; ``anchor`` is start, middle or end."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'fill="{fill}">{html.escape(words)}</text>'
    )


def rect(x: float, y: float, width: float, height: float, fill: str, title: str = ""):
    """A filled box that says ``title`` under the pointer."""
    inside = f"<title>{html.escape(title)}</title>" if title else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.4):.2f}" height="{height:.1f}" '
        f'rx="1.5" fill="{fill}">{inside}</rect>'
    )


def line(x1: float, y1: float, x2: float, y2: float, stroke: str = FAINT, width: float = 1):
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" '
        f'stroke-width="{width:g}"/>'
    )


def path(points: Sequence[tuple[float, float]], stroke: str):
    steps = " ".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(points))
    return f'<path d="{steps}" fill="none" stroke="{stroke}" stroke-width="2.2"/>'


def dot(x: float, y: float, fill: str, title: str, radius: float = 4.5):
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}">'
        f"<title>{html.escape(title)}</title></circle>"
    )


def picture(width: int, height: int, label: str, parts: Sequence[str]) -> str:
    """The whole drawing; ``label`` is read out in place of it."""
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(label)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


class Scale:
    """From values to pixels, linear or logarithmic, with round ticks."""

    def __init__(self, low: float, high: float, start: float, end: float, log: bool = False):
        self.log = log
        self.low, self.high = low, high if high > low else low + 1
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        if self.log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            return [10.0**n for n in range(first, last + 1)]
        step = 10 ** math.floor(math.log10(self.high - self.low))
        for factor in (0.2, 0.5, 1, 2):
            if (self.high - self.low) / (step * factor) <= 7:
                step *= factor
                break
        first = math.ceil(self.low / step - 1e-9)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def axes(across: Scale, up: Scale, across_label: str, up_label: str) -> list[str]:
    """Grid, tick labels and axis labels; ``up.start`` is the lower end."""
    parts = []
    for value in across.ticks():
        x = across(value)
        parts += [line(x, up.start, x, up.end), text(x, up.start + 16, _short(value), "middle", 11)]
    for value in up.ticks():
        y = up(value)
        parts += [
            line(across.start, y, across.end, y),
            text(across.start - 6, y + 4, _short(value), "end", 11),
        ]
    middle = (across.start + across.end) / 2
    return [
        *parts,
        text(middle, up.start + 34, across_label, "middle"),
        text(across.start, up.end - 10, up_label),
    ]


def _short(value: float) -> str:
    for limit, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:g}{suffix}"
    return f"{value:g}"
