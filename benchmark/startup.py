"""``python -m benchmark.startup``: from ``./launch/serve.sh`` to the first answered request.

Starts the server several times, one after the other, asks it for one token until it answers, and
writes the median of every phase (``sglang_ascend/plugin/start_times.py``) and of CPU
time and memory of every process. They are times of one machine: read them beside its cores.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from sglang_ascend.errors import ConfigError
from sglang_ascend.planner.calibration.ports import free_port
from sglang_ascend.plugin.start_times import REPORT_ENV

ROOT = Path(__file__).resolve().parent.parent
#: A start on a busy machine; one that takes longer has failed.
TIMEOUT_S = 300
POLL_S = 0.1


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Flags; exits with a usage message where they make no sense."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmark.startup",
        description="Time from ./launch/serve.sh to the first answered request, by phase.",
    )
    parser.add_argument("--starts", type=int, default=3, help="how many (default: 3)")
    parser.add_argument(
        "--flags", default="", help="flags of serve.sh in one string, e.g. '--tp-size 2'"
    )
    parser.add_argument("--output", type=Path, help="JSON file to write (default: only the table)")
    given = parser.parse_args(argv)
    if given.starts < 1:
        parser.error(f"--starts {given.starts}: at least one start is needed")
    return given


def main(argv: list[str] | None = None) -> int:
    """0; 1 where a start failed, with the end of its log on stderr."""
    given = parse(argv)
    flags = shlex.split(given.flags)
    starts = []
    for number in range(given.starts):
        print(f"start {number + 1}/{given.starts}", file=sys.stderr, flush=True)
        try:
            starts.append(start_once([str(ROOT / "launch" / "serve.sh"), *flags]))
        except ConfigError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    result = {
        "flags": flags,
        "cores": len(os.sched_getaffinity(0)),
        "median": medians(starts),
        "starts": starts,
    }
    print_table(result["median"])
    if given.output:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def start_once(command: list[str]) -> dict[str, Any]:
    """Start, wait for one answer and for the report, stop.

    Returns:
        ``first_answer_s``, and the report of ``start_times``.

    Raises:
        ConfigError: the server ended, or did not answer within `TIMEOUT_S`; says what its log says.
    """
    with tempfile.TemporaryDirectory() as folder:
        report, log = Path(folder) / "report.json", Path(folder) / "log"
        port = free_port()
        begin = time.monotonic()
        with log.open("w") as out:
            process = subprocess.Popen(
                [*command, "--port", str(port)],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, REPORT_ENV: str(report)},
                start_new_session=True,
            )
        try:
            _wait(lambda: _answers(port), process, log, begin)
            first_answer = time.monotonic() - begin
            _wait(report.exists, process, log, begin)
            time.sleep(POLL_S)  # the report is one write, and small
            return {"first_answer_s": first_answer, **json.loads(report.read_text())}
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def medians(starts: list[dict[str, Any]]) -> dict[str, Any]:
    """Median of every number over starts, key by key; processes by name, those of a name summed."""
    return {
        "first_answer_s": statistics.median(start["first_answer_s"] for start in starts),
        "total_s": statistics.median(start["total_s"] for start in starts),
        "phases_s": _by_key([start["phases_s"] for start in starts]),
        "engine_s": _by_key(
            [
                {key: value for key, value in start["engine_s"].items() if _is_number(value)}
                for start in starts
            ]
        ),
        "processes": {
            what: _by_key([_summed(start["processes"], what) for start in starts])
            for what in ("cpu_s", "pss_mib")
        },
    }


def print_table(median: dict[str, Any]) -> None:
    """The medians as text, on stdout."""
    print(f"first answer {median['first_answer_s']:6.1f} s   ready {median['total_s']:6.1f} s")
    for phase, seconds in median["phases_s"].items():
        print(f"  {phase:<24} {seconds:6.1f} s")
    for part, seconds in median["engine_s"].items():
        print(f"    of engine: {part:<20} {seconds:6.1f} s")
    for name, seconds in median["processes"]["cpu_s"].items():
        memory = median["processes"]["pss_mib"][name]
        print(f"  {name:<32} {seconds:6.1f} s of CPU {memory:7.0f} MiB")


def _by_key(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(row[key] for row in rows if key in row) for key in rows[0]}


def _summed(processes: list[dict[str, Any]], what: str) -> dict[str, float]:
    sums: dict[str, float] = {}
    for process in processes:
        sums[process["name"]] = sums.get(process["name"], 0.0) + process[what]
    return sums


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _wait(until, process: subprocess.Popen, log: Path, begin: float) -> None:
    while not until():
        ended = process.poll() is not None
        if ended or time.monotonic() - begin > TIMEOUT_S:
            what = f"ended with {process.returncode}" if ended else f"took over {TIMEOUT_S} s"
            tail = log.read_text(errors="replace").strip().splitlines()[-5:]
            raise ConfigError(f"the server {what}; its log ends with: {' | '.join(tail)}")
        time.sleep(POLL_S)


def _answers(port: int) -> bool:
    body = {"text": "The capital of France is", "sampling_params": {"max_new_tokens": 1}}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/generate",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            return response.status == 200
    except (urllib.error.URLError, ConnectionError):
        return False


if __name__ == "__main__":
    sys.exit(main())
