"""``python -m benchmark.serving``: the speed of the reference device, beside other servers'."""

from __future__ import annotations

import argparse
import datetime
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmark import partners, serving_flags, serving_machine
from benchmark import serving_report as report
from benchmark.partners.contender import Contender, Job
from sglang_ascend.errors import ConfigError
from sglang_ascend.planner.calibration.closed_loop import Cell, LoadError, measure, prompts
from sglang_ascend.planner.calibration.ports import free_port
from sglang_ascend.planner.calibration.server_process import ServerFailed, ServerProcess

#: Output tokens of the requests before a measurement.
WARM_UP_TOKENS = 4


def main(argv: list[str] | None = None) -> int:
    """0; 1 where a server failed, after all others; 2 where a flag cannot be used."""
    try:
        result = run(serving_flags.parse(argv))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    failed = [s for s in result["servers"].values() if s["status"].startswith("failed")]
    return 1 if failed else 0


def run(given: argparse.Namespace) -> dict[str, Any]:
    """Measure, print the table, write the files; returns what the JSON file holds."""
    every = partners.contenders(given.ours, given.partners, given.llama_server, given.vllm_python)
    result = {
        "date": datetime.date.today().isoformat(),
        "settings": {
            "model": _model_name(given),
            "rounds": given.rounds,
            "repeats": given.repeats,
            "concurrency": given.concurrency,
            "requests": [serving_flags.requests_at(given, one) for one in given.concurrency],
            "input_len": given.input_len,
            "output_len": given.output_len,
        },
        "machine": serving_machine.describe(),
        "servers": {one.name: _entry(one, given) for one in every},
    }
    for number in range(given.rounds):
        for one in every:
            entry = result["servers"][one.name]
            if entry["status"] not in ("waiting", "measured"):
                continue
            _say(f"round {number + 1}/{given.rounds}: {one.name}")
            try:
                entry["rounds"].append(_round(one, given, number))
                entry["status"] = "measured"
            except (ServerFailed, LoadError, ConfigError) as error:
                entry["status"] = f"failed: {_without_paths(str(error), given)}"
                _say(f"{one.name} {entry['status']}")
            _write(result, given.out)  # after each server: what comes later may fail
    _write(result, given.out)
    print(report.table(result))
    print(f"wrote {given.out} and {given.out.with_suffix('.svg').name}")
    return result


def _entry(one: Contender, given: argparse.Namespace) -> dict[str, Any]:
    entry: dict[str, Any] = {"family": one.family, "number_format": one.number_format}
    reason = one.missing() or one.unfit(_job(given, Path(), 0))
    entry["status"] = reason or "waiting"
    if not reason:
        entry["version"] = one.version()
    entry["rounds"] = []
    return entry


def _job(given: argparse.Namespace, scratch: Path, port: int) -> Job:
    context = given.input_len + given.output_len
    return Job(given.model, given.folder, port, max(given.concurrency), context, scratch)


def _round(one: Contender, given: argparse.Namespace, number: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="benchmark_serving_") as scratch:
        job = _job(given, Path(scratch), free_port())
        log = Path(scratch) / "server.log"
        if given.logs:
            given.logs.mkdir(parents=True, exist_ok=True)
            log = given.logs / f"{one.name}.{number + 1}.log"
        load_before = serving_machine.load()
        with ServerProcess(one.launch(job), job.port, one.dialect, log) as server:
            _say(f"  answers after {server.startup_s:.1f} s")
            cells = [
                _cell(server, one, given, number * given.repeats + repeat, at)
                for repeat in range(given.repeats)
                for at in given.concurrency
            ]
            server.look_at_memory()
        return {
            "startup_s": server.startup_s,
            "peak_memory_bytes": server.peak_memory_bytes,
            "load_before": load_before,
            "cells": [cell.as_json() for cell in cells],
        }


def _cell(
    server: ServerProcess, one: Contender, given: argparse.Namespace, number: int, at: int
) -> Cell:
    """Warm up with other prompts, then measure; those of a number are the same for all servers."""
    asked = serving_flags.requests_at(given, at)
    drawn = prompts(given.vocabulary, at + asked, given.input_len, seed=1000 * number + at)
    measure(server.url, one.dialect, drawn[:at], WARM_UP_TOKENS, at)
    cell = measure(server.url, one.dialect, drawn[at:], given.output_len, at)
    _say(f"  {at} at the same time: {cell.as_json()['tokens_per_s']:.1f} tokens/s")
    return cell


def _write(result: dict[str, Any], out: Path) -> None:
    for server in result["servers"].values():
        if server["rounds"]:
            server["medians"] = report.medians(server["rounds"])
    report.add_ratios(result["servers"])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
    out.with_suffix(".svg").write_text(report.plot(result))


def _model_name(given: argparse.Namespace) -> str:
    """The name of an embedded model, or the last part of a path."""
    return Path(given.model).name


def _without_paths(text: str, given: argparse.Namespace) -> str:
    return text.replace(str(given.folder), _model_name(given)).replace(str(Path.home()), "~")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a server ends with it
    sys.exit(main())
