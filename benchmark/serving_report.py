"""Medians, ratios, table and plot of benchmark.serving."""

from __future__ import annotations

import statistics
from typing import Any

from benchmark.partners import BASELINE
from sglang_ascend.planner import svg

_STYLE = (
    "<style>svg{--ink:#1c2530;--faint:#dde2e8;font-family:system-ui,sans-serif;background:#fff}"
    "</style>"
)
_LEFT, _WIDTH, _BAR, _GAP, _TOP = 190, 860, 16, 14, 66


def p90(values: list[float]) -> float:
    """The 90th percentile, between neighbours where it falls between them."""
    ordered = sorted(values)
    place = 0.9 * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def medians(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of a server over its rounds.

    Throughput: median of all measurements; ``low`` and ``high`` are the extremes. Start-up and
    memory: median of the rounds. TTFT and TPOT: median and 90th percentile of all requests, in
    seconds.
    """
    at: dict[str, Any] = {}
    for concurrency in dict.fromkeys(cell["concurrency"] for cell in rounds[0]["cells"]):
        cells = [c for r in rounds for c in r["cells"] if c["concurrency"] == concurrency]
        rates = [cell["tokens_per_s"] for cell in cells]
        answers = [answer for cell in cells for answer in cell["answers"]]
        # A server that holds its whole answer back has no time per token.
        tpot = [answer["tpot_s"] for answer in answers if answer["tpot_s"] is not None]
        at[str(concurrency)] = {
            "tokens_per_s": statistics.median(rates),
            "tokens_per_s_low": min(rates),
            "tokens_per_s_high": max(rates),
            "ttft_s": _middle([answer["first_s"] for answer in answers]),
            "tpot_s": _middle(tpot) if tpot else None,
        }
    return {
        "startup_s": statistics.median(one["startup_s"] for one in rounds),
        "peak_memory_bytes": statistics.median(one["peak_memory_bytes"] for one in rounds),
        "at": at,
    }


def _middle(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "p90": p90(values)}


def add_ratios(servers: dict[str, dict[str, Any]]) -> None:
    """Give every measured server its throughput over the baseline's; None without a baseline."""
    base = servers.get(BASELINE, {}).get("medians")
    for server in servers.values():
        if "medians" not in server:
            continue
        server[f"ratio_to_{BASELINE}"] = {
            concurrency: found["tokens_per_s"] / base["at"][concurrency]["tokens_per_s"]
            if base
            else None
            for concurrency, found in server["medians"]["at"].items()
        }


def table(result: dict[str, Any]) -> str:
    """Plain text: a line for each server and concurrency, and one for each that is missing."""
    lines = [
        f"{'server':22} {'at':>3} {'tokens/s':>9} {'ratio':>6} {'TTFT ms':>8} {'p90':>7}"
        f" {'TPOT ms':>8} {'p90':>7} {'memory':>8} {'start':>7}"
    ]
    for name, server in result["servers"].items():
        if "medians" not in server:
            lines.append(f"{name:22} {server['status']}")
            continue
        found = server["medians"]
        whole = f" {found['peak_memory_bytes'] / 1e6:5.0f} MB {found['startup_s']:5.1f} s"
        for concurrency, cell in found["at"].items():
            ratio = server[f"ratio_to_{BASELINE}"][concurrency]
            lines.append(
                f"{name:22} {concurrency:>3} {cell['tokens_per_s']:>9.1f}"
                f" {f'{ratio:.2f}' if ratio else '-':>6} {_ms(cell['ttft_s'])}"
                f" {_ms(cell['tpot_s'])}{whole}"
            )
            whole = ""
    if any("medians" in server for server in result["servers"].values()):
        lines.append(f"ratio: tokens/s over {BASELINE}'s at the same concurrency")
    return "\n".join(lines)


def _ms(found: dict[str, float] | None) -> str:
    if found is None:
        return f"{'-':>8} {'-':>7}"
    return f"{found['median'] * 1e3:>8.1f} {found['p90'] * 1e3:>7.1f}"


def plot(result: dict[str, Any]) -> str:
    """SVG: a bar of tokens a second for each server and concurrency; the missing are named."""
    concurrencies = [str(value) for value in result["settings"]["concurrency"]]
    rates = [
        cell["tokens_per_s"]
        for server in result["servers"].values()
        for cell in server.get("medians", {"at": {}})["at"].values()
    ]
    across = svg.Scale(0, max(rates, default=1.0), _LEFT, _WIDTH - 110)
    parts = [svg.text(12, 24, f"Output tokens a second, {result['settings']['model']}", size=16)]
    for index, concurrency in enumerate(concurrencies):
        x = 12 + 190 * index
        parts.append(svg.rect(x, 38, 12, 12, _colour(index)))
        parts.append(svg.text(x + 18, 48, f"{concurrency} at the same time"))
    y = _TOP
    for name, server in result["servers"].items():
        height = _BAR * len(concurrencies)
        parts.append(svg.text(_LEFT - 8, y + height / 2 + 4, name, "end"))
        if "medians" not in server:
            parts.append(svg.text(_LEFT + 4, y + height / 2 + 4, server["status"][:90], size=11))
        else:
            parts += _bars(server, across, y)
        y += height + _GAP
    parts.append(svg.line(_LEFT, _TOP - 6, _LEFT, y - _GAP + 6, svg.INK))
    parts.append(svg.text(12, y + 10, _caption(result), size=11))
    drawn = svg.picture(_WIDTH, y + 22, "output tokens a second of each server", parts)
    head, rest = drawn.split(">", 1)
    return f"{head}>{_STYLE}{rest}\n"


def _bars(server: dict[str, Any], across: svg.Scale, y: float) -> list[str]:
    parts = []
    for index, (concurrency, cell) in enumerate(server["medians"]["at"].items()):
        rate, top = cell["tokens_per_s"], y + _BAR * index
        ratio = server[f"ratio_to_{BASELINE}"][concurrency]
        label = f"{rate:.1f}" + (f" ({ratio:.2f}x)" if ratio else "")
        title = f"{concurrency} at the same time: {rate:.1f} tokens/s"
        width = across(rate) - across.start
        parts.append(svg.rect(_LEFT, top + 1, width, _BAR - 2, _colour(index), title))
        parts.append(svg.text(across(rate) + 5, top + 12, label, size=11))
    return parts


def _colour(index: int) -> str:
    return svg.COLOURS[index % len(svg.COLOURS)]


def _caption(result: dict[str, Any]) -> str:
    settings, machine = result["settings"], result["machine"]
    return (
        f"{settings['input_len']} random tokens in, {settings['output_len']} out, medians of "
        f"{settings['rounds']} round(s); {machine['processor']}, {machine['cores']} cores; "
        f"(x): over {BASELINE}"
    )
