"""A prediction as text, as plain data for JSON, and as a page to read."""

from __future__ import annotations

import html
import sys
from pathlib import Path
from typing import Any

from sglang_ascend.deploy import deployment_file
from sglang_ascend.deploy.deployment import Phase
from sglang_ascend.errors import ConfigError
from sglang_ascend.planner import pictures, sensitivity
from sglang_ascend.planner.predict import Model, Prediction, RolePrediction

_CURVE = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_STYLE = """
:root{--ink:#1c2530;--faint:#e3e7ec;--paper:#fff;--soft:#5b6672}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ed;--faint:#333c47;--paper:#14191f;
--soft:#9aa5b1}}
body{margin:0 auto;max-width:920px;padding:28px 20px 60px;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}h1{font-size:26px;margin:0}h2{font-size:19px;margin:38px 0 6px}
h3{font-size:15px;margin:22px 0 4px}p{margin:6px 0;color:var(--soft)}svg{width:100%;height:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:8px 0}
td,th{padding:3px 14px 3px 0;text-align:left;border-bottom:1px solid var(--faint)}
.big{display:flex;flex-wrap:wrap;gap:26px;margin:20px 0}.big b{display:block;font-size:25px}
.big span{color:var(--soft);font-size:13px}pre{overflow-x:auto;background:var(--faint);padding:12px}
"""


def text(found: Prediction) -> str:
    """Tables for a terminal."""
    lines = [f"{found.deployment.name} with {found.workload.name} (predictions)"]
    for phase, role in found.roles.items():
        lines += ["", f"{phase}: {_headline(role, found)}"]
        whole = role.step.seconds
        for name, seconds in role.step.parts.items():
            bar = "#" * round(30 * seconds / whole)
            lines.append(f"  {name:24s}{seconds * 1e3:9.2f} ms {seconds / whole:6.1%}  {bar}")
        lines.append(f"  {'step':24s}{whole * 1e3:9.2f} ms")
    lines += ["", _sustained(found)]
    for name, times in (("TTFT", found.ttft_s), ("TPOT", found.tpot_s)):
        if times:
            values = ", ".join(f"p{p} {s * 1e3:.1f}" for p, s in times.items())
            lines.append(f"{name} at {found.workload.arrival_per_s:g} requests/s: {values} ms")
    return "\n".join(lines)


def _headline(role: RolePrediction, found: Prediction) -> str:
    if role.tpot_s:
        return (
            f"{role.requests_per_rank:.1f} requests a rank, TPOT {role.tpot_s * 1e3:.1f} ms, "
            f"{role.tokens_per_s_card:.0f} output tokens/s a card ({role.role.cards} cards)"
        )
    return (
        f"batch in {role.step.seconds * 1e3:.0f} ms, {role.tokens_per_s_card:.0f} prompt "
        f"tokens/s a card ({role.role.cards} cards)"
    )


def _sustained(found: Prediction) -> str:
    words = (
        f"sustains {found.requests_per_s:.2f} requests/s, limited by {found.bottleneck}; "
        f"{found.output_tokens_per_s_card:.0f} output tokens/s a card over all "
        f"{found.deployment.cards} cards"
    )
    if found.transfer_s:
        words += f"; keys and values of a request move in {found.transfer_s * 1e3:.1f} ms"
    return words


def data(found: Prediction) -> dict[str, Any]:
    """Plain data."""
    return {
        "deployment": found.deployment.name,
        "workload": found.workload.name,
        "note": "predictions from configs/hardware and planner/constants.yaml",
        "requests_per_s": found.requests_per_s,
        "bottleneck": found.bottleneck.value,
        "output_tokens_per_s_card": found.output_tokens_per_s_card,
        "transfer_s": found.transfer_s,
        "ttft_s": found.ttft_s,
        "tpot_s": found.tpot_s,
        "roles": {phase.value: _role_data(role) for phase, role in found.roles.items()},
    }


def _role_data(role: RolePrediction) -> dict[str, Any]:
    return {
        "cards": role.role.cards,
        "requests_per_rank": role.requests_per_rank,
        "step_s": role.step.seconds,
        "tpot_s": role.tpot_s,
        "tokens_per_s_card": role.tokens_per_s_card,
        "requests_per_s": role.requests_per_s,
        "parts_s": dict(role.step.parts),
        "layers": {
            kind: {
                "count": count,
                "total_s": layer.total_s,
                "nodes_s": dict(layer.seconds),
                "bytes_by_link": {
                    name: {link.value: size for link, size in links.items()}
                    for name, links in layer.bytes_by_link.items()
                },
            }
            for kind, (layer, count) in role.step.layers.items()
        },
        "memory_bytes": dict(role.memory.parts),
        "kv_tokens": role.memory.kv_tokens,
    }


def page(found: Prediction) -> str:
    """A self-contained HTML page."""
    model = Model(found.deployment, found.workload)
    figures = [
        (f"{found.requests_per_s:.2f}", "requests/s sustained"),
        (f"{found.output_tokens_per_s_card:.0f}", "output tokens/s a card, all cards"),
        (str(found.deployment.cards), "cards"),
        (found.bottleneck.value, "is the limit"),
    ]
    body = [
        f"<h1>{html.escape(found.deployment.name)}</h1>",
        f"<p>{html.escape(found.deployment.model)} on {html.escape(found.deployment.hardware)}, "
        f"workload {html.escape(found.workload.name)}: {found.workload.input_tokens} tokens in, "
        f"{found.workload.output_tokens} out. All figures are predictions.</p>",
        _big(figures),
    ]
    for phase, role in found.roles.items():
        body += _role_section(model, found, phase, role)
    rows = sensitivity.tornado(found.deployment, found.workload)[:12]
    body += [
        "<h2>What the answer rests on</h2>",
        "<p>Requests/s with each constant 20 % lower (orange) and higher (blue).</p>",
        pictures.tornado(rows, "change of requests/s"),
        "<h2>The deployment</h2>",
        f"<pre>{html.escape(deployment_file.dump(found.deployment))}</pre>",
    ]
    return wrap(found.deployment.name, body)


def wrap(title: str, body: list[str]) -> str:
    """A page around its parts."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}'
        '</title><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _big(figures: list[tuple[str, str]]) -> str:
    cells = (f"<div><b>{html.escape(b)}</b><span>{html.escape(s)}</span></div>" for b, s in figures)
    return f'<div class="big">{"".join(cells)}</div>'


def _role_section(model: Model, found: Prediction, phase: Phase, role: RolePrediction) -> list[str]:
    kind, (layer, count) = max(role.step.layers.items(), key=lambda item: item[1][1])
    precision = found.deployment.precision
    gib = 1 << 30
    memory = {name: size / gib for name, size in role.memory.parts.items()}
    pool = max(0, role.memory.kv_tokens) * role.memory.kv_bytes_per_token / gib
    memory[f"KV pool ({role.memory.kv_tokens} tokens)"] = pool
    whole = model.hardware.si("memory.capacity") / gib
    memory["left free"] = max(0.0, whole - sum(memory.values()))
    section = [
        f"<h2>{phase.value.capitalize()}</h2><p>{html.escape(_headline(role, found))}</p>",
        "<h3>Where a step goes</h3>",
        pictures.waterfall(role.step),
        f"<h3>Two of {count} {kind} layers</h3><p>Each engine does one thing at a time; what "
        "overlaps is what the layer graph allows.</p>",
        pictures.time_line(layer),
    ]
    if phase is Phase.DECODE:
        most = model.most_requests(role.role, role.memory)
        rows = []
        for requests in (n for n in _CURVE if n <= max(most, role.requests_per_rank)):
            tpot = model.tpot_s(role.role, requests)
            per_card = requests * role.role.ranks * role.role.instances / tpot / role.role.cards
            rows.append((float(requests), tpot * 1e3, per_card))
        if rows:
            section += [
                "<h3>Throughput and TPOT over the batch</h3>",
                pictures.batch_curves(
                    rows, (role.tpot_s * 1e3, role.tokens_per_s_card), found.workload.tpot_ms
                ),
            ]
    dtypes = tuple(dict.fromkeys((precision.activations, precision.wide)))
    return [
        *section,
        "<h3>Kernels under the roofline</h3>",
        pictures.roofline(layer, model.device, dtypes),
        "<h3>Memory of a rank</h3>",
        pictures.stacked_bar(memory, whole, "GiB"),
    ]


def write(path: Path, content: str) -> None:
    """Write a file that the user named, and say so on stderr.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}; choose another path") from error
    print(f"wrote {path}", file=sys.stderr)
