"""Does the planner's method hold on a machine that we have?

Measures this machine as ``planner calibrate`` does, predicts what ``benchmark.serving`` will find
of the reference device for the two embedded models, and runs it. Each round serves both before and
after it measures the machine, so that other load, which comes and goes, falls on both sides alike.
A ratio is taken in each round; its median counts. No constant is fitted on what is predicted:
kernels are timed alone, and the host on small models of random weights.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import json
import signal
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmark import serving, serving_flags, serving_machine, serving_report
from sglang_ascend.errors import ConfigError
from sglang_ascend.models import catalog
from sglang_ascend.planner.calibration import machine, prediction, steps

_RESULTS = Path(__file__).resolve().parent / "results" / "planner_calibration.json"
_FIGURES = ("ttft_s", "tpot_s", "tokens_per_s")
_WANTED = 0.20
#: Measurements of a served model: sixteen answers of a small one take a second, too short a look.
_REPEATS = 4
_EPILOG = """\
examples:
  python -m benchmark.planner_calibration                   seven minutes on two cores
  python -m benchmark.planner_calibration --formats float32,ascend_w8a8 --rounds 1

Run it on a quiet machine: servers and client share its cores. With other load on it, ratios still
mean something, absolute times do not. The exit code says whether it ran, not how good it was."""


def main(argv: list[str] | None = None) -> int:
    """0; 1 where a served model failed; 2 where something asked for cannot be done or measured."""
    given = _parse(argv)
    try:
        result = run(given)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except serving.ServerFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))
    print(f"wrote {given.out}")
    return 0


def run(given: argparse.Namespace) -> dict[str, Any]:
    """Measure and predict; returns what the JSON file holds."""
    asked = {(m, f): prediction.question(m, f) for m in given.models for f in given.formats}
    formats = set().union(*(question.formats for question in asked.values()))
    machines, served = [], []
    load = serving_machine.load()
    for number in range(given.rounds):
        _say(f"round {number + 1}/{given.rounds}")
        before = _all_served(given)
        _say("this machine")
        machines.append(machine.measure(formats))
        served.append((before, _all_served(given)))
    middle = machine.median(machines)
    rows = []
    for (model, form), question in asked.items():
        pairs = [[side[model][form] for side in sides] for sides in served]
        rows += _rows(model, form, pairs, [question.on(one) for one in machines])
    return {
        "date": datetime.date.today().isoformat(),
        "machine": serving_machine.describe(),
        "load_before": load,
        "rounds": given.rounds,
        "fitted_constants": 0,
        "host": {kind: asdict(own) for kind, own in middle.host.items()},
        "kernels": dict(middle.rates.figures),
        "cells": rows,
    }


def table(result: dict[str, Any]) -> str:
    """Predicted and measured side by side, and how many are near enough."""
    lines = [
        f"{'model':22} {'format':12} {'at':>3}"
        + "".join(f" {name:>22}" for name in ("TTFT ms", "TPOT ms", "tokens/s")),
        f"{'':39}" + 3 * f" {'predicted measured  /':>22}",
    ]
    near = []
    for row in result["cells"]:
        cells = ""
        for name in _FIGURES:
            unit = 1.0 if name == "tokens_per_s" else 1e3
            predicted, measured = row["predicted"][name] * unit, row["measured"][name] * unit
            cells += f" {predicted:>8.1f} {measured:>8.1f} {row['ratio'][name]:>4.2f}"
            near.append(abs(row["ratio"][name] - 1) <= _WANTED)
        lines.append(f"{row['model']:22} {row['format']:12} {row['requests']:>3}{cells}")
    lines.append(f"within {_WANTED:.0%}: {sum(near)} of {len(near)} figures")
    return "\n".join(lines)


def _all_served(given: argparse.Namespace) -> dict[str, Any]:
    found = {}
    for model in given.models:
        _say(model)
        found[model] = _served(model, given.formats)
    return found


def _served(model: str, formats: list[str]) -> dict[str, Any]:
    """One round of benchmark.serving: its result's servers by format."""
    with tempfile.TemporaryDirectory(prefix="planner_calibration_") as folder:
        flags = ["--model", model, "--partners", "none", "--ours", ",".join(formats)]
        flags += ["--rounds", "1", "--repeats", str(_REPEATS)]
        flags += ["--out", str(Path(folder) / "serving.json")]
        with contextlib.redirect_stdout(io.StringIO()):
            found = serving.run(serving_flags.parse(flags))["servers"]
    for server in found.values():
        if server["status"] != "measured":
            raise serving.ServerFailed(f"{model}: {server['status']}")
    return {server["number_format"]: server["rounds"][0] for server in found.values()}


def _rows(model: str, form: str, served: list[list], predictors: list) -> list[dict[str, Any]]:
    """Predicted and measured at each number of requests: of every round, and their medians."""
    measured = [serving_report.medians(pair)["at"] for pair in served]
    rows = []
    for requests in measured[0]:
        rounds = []
        for cell, predictor in zip([one[requests] for one in measured], predictors):
            predicted = asdict(predictor.serve(prediction.Load(requests=int(requests))))
            found = {
                name: cell[name] if name == "tokens_per_s" else cell[name]["median"]
                for name in _FIGURES
            }
            ratio = {name: predicted[name] / found[name] for name in _FIGURES}
            rounds.append({"predicted": predicted, "measured": found, "ratio": ratio})
        middle = {
            side: {name: statistics.median(one[side][name] for one in rounds) for name in _FIGURES}
            for side in rounds[0]
        }
        about = {"model": model, "format": form, "requests": int(requests)}
        rows.append({**about, **middle, "rounds": rounds})
    return rows


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmark.planner_calibration",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
    )
    names = ",".join(catalog.EMBEDDED)
    parser.add_argument("--models", default=names, help=f"separated by commas (default: {names})")
    parser.add_argument(
        "--formats",
        default="float32",
        help=f"of ours: {', '.join(steps.PRECISIONS)} (default: float32)",
    )
    parser.add_argument("--rounds", type=int, default=2, help="over all models (default: 2)")
    parser.add_argument("--out", type=Path, default=_RESULTS, metavar="FILE", help="JSON to write")
    given = parser.parse_args(argv)
    for flag, accepted in (("models", catalog.EMBEDDED), ("formats", tuple(steps.PRECISIONS))):
        chosen = list(dict.fromkeys(getattr(given, flag).split(",")))
        if wrong := [word for word in chosen if word not in accepted]:
            parser.error(f"--{flag} {wrong[0]!r} is not accepted; choose from {accepted}")
        setattr(given, flag, chosen)
    if given.rounds < 1:
        parser.error(f"--rounds {given.rounds}: give 1 or more")
    return given


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers end with it
    sys.exit(main())
