"""Table and plot of ``benchmark.dp_controller``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from benchmark.dp_controller_policies import OURS
from benchmark.dp_controller_run import Outcome

_COLOURS = {OURS: "#c2410c"}
_OTHER_COLOURS = ("#1e3a5f", "#4f7cac", "#8fb8de", "#b8bec6")
_PANEL_W, _PANEL_H, _LEFT, _TOP, _GAP = 250, 190, 60, 84, 52
_LINE_H = _PANEL_H + 90

#: Title and figure of each panel of the plot.
PANELS = (
    ("KV tokens, max / mean", lambda outcome: outcome.kv_ratio_mean),
    ("prompt tokens cached, %", lambda outcome: 100 * outcome.hit_rate),
    ("mean TTFT, s", lambda outcome: outcome.ttft_mean_s),
    ("p99 TTFT, s", lambda outcome: outcome.ttft_p99_s),
)


@dataclass(frozen=True)
class Row:
    """All policies on one trace at one load, and the hit rate if the ranks shared one pool."""

    trace: str
    load: float
    outcomes: Sequence[Outcome]
    pooled_hit_rate: float


def table(outcomes: Sequence[Outcome]) -> str:
    """One line a policy."""
    head = (
        f"{'policy':<24}{'KV max/mean':>12}{'p99':>7}{'cached':>9}"
        f"{'TTFT mean':>12}{'p50':>8}{'p99':>9}{'choice':>10}"
    )
    lines = [head, "-" * len(head)]
    for o in outcomes:
        lines.append(
            f"{o.policy:<24}{o.kv_ratio_mean:>12.2f}{o.kv_ratio_p99:>7.2f}{o.hit_rate:>9.1%}"
            f"{o.ttft_mean_s:>10.2f} s{o.ttft_p50_s:>6.2f} s{o.ttft_p99_s:>7.2f} s"
            f"{o.choice_us[0]:>7.0f} us"
        )
    return "\n".join(lines)


def ratios(outcomes: Sequence[Outcome]) -> str:
    """What each of SGLang's policies needs, ours being 1."""
    ours = next(o for o in outcomes if o.policy == OURS)
    lines = []
    for o in outcomes:
        if o is not ours:
            lines.append(
                f"  {o.policy} / {OURS}: mean TTFT {o.ttft_mean_s / ours.ttft_mean_s:.2f}, "
                f"p99 TTFT {o.ttft_p99_s / ours.ttft_p99_s:.2f}, "
                f"KV max/mean {o.kv_ratio_mean / ours.kv_ratio_mean:.2f}"
            )
    return "\n".join(lines)


def svg(rows: Sequence[Row]) -> str:
    """Plot every figure over load, one line of panels a trace."""
    traces = list(dict.fromkeys(row.trace for row in rows))
    policies = [outcome.policy for outcome in rows[0].outcomes]
    width = _LEFT + len(PANELS) * (_PANEL_W + _GAP)
    height = _TOP + len(traces) * _LINE_H
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12" fill="#222">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for place, policy in enumerate(policies):
        x = _LEFT + place * 190
        parts.append(
            f'<rect x="{x}" y="14" width="22" height="4" fill="{_colour(policy, policies)}"/>'
            f'<text x="{x + 28}" y="21">{escape(policy)}</text>'
        )
    for line, trace in enumerate(traces):
        y = _TOP + line * _LINE_H
        parts.append(f'<text x="{_LEFT}" y="{y - 28}" font-size="14">{escape(trace)}</text>')
        for column, (title, figure) in enumerate(PANELS):
            series = {
                policy: [
                    (row.load, figure(next(o for o in row.outcomes if o.policy == policy)))
                    for row in rows
                    if row.trace == trace
                ]
                for policy in policies
            }
            x = _LEFT + column * (_PANEL_W + _GAP)
            parts.append(_panel(x, y, title, series, policies))
    return "\n".join([*parts, "</svg>"])


def _colour(policy: str, policies: Sequence[str]) -> str:
    others = [name for name in policies if name not in _COLOURS]
    return _COLOURS.get(policy) or _OTHER_COLOURS[others.index(policy) % len(_OTHER_COLOURS)]


def _panel(
    x: float,
    y: float,
    title: str,
    series: dict[str, list[tuple[float, float]]],
    policies: Sequence[str],
) -> str:
    loads = sorted({load for points in series.values() for load, _ in points})
    top = 1.08 * max(value for points in series.values() for _, value in points) or 1.0
    span = loads[-1] - loads[0] or 1.0

    def at(load: float, value: float) -> tuple[float, float]:
        inner = 12 + (_PANEL_W - 24) * (load - loads[0]) / span
        return x + inner, y + _PANEL_H * (1 - value / top)

    parts = [f'<text x="{x}" y="{y - 8}" font-weight="bold">{escape(title)}</text>']
    for step in range(5):
        level = top * step / 4
        height = y + _PANEL_H * (1 - step / 4)
        parts.append(
            f'<line x1="{x}" x2="{x + _PANEL_W}" y1="{height}" y2="{height}" stroke="#ddd"/>'
            f'<text x="{x - 6}" y="{height + 4}" text-anchor="end">{level:.3g}</text>'
        )
    for load in loads:
        parts.append(
            f'<text x="{at(load, 0)[0]}" y="{y + _PANEL_H + 17}" text-anchor="middle">'
            f"{load:.0%}</text>"
        )
    parts.append(f'<text x="{x}" y="{y + _PANEL_H + 33}" fill="#666">load</text>')
    for policy, points in series.items():
        colour = _colour(policy, policies)
        places = [at(load, value) for load, value in points]
        line = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" '
            f'stroke-width="{3 if policy in _COLOURS else 2}"/>'
        )
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in places]
    return "\n".join(parts)
