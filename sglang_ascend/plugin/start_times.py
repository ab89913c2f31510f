"""How long a start took, by phase and by process: one line of the log once the server is ready.

    sglang_ascend: ready in 14.8 s: set-up 0.4, imports 9.1, flags 0.4, engine 3.5, warm-up 1.4

Phases are wall-clock seconds: until Python runs the launcher (``launch/serve.sh`` checks the
environment and becomes the launcher, so that the process began with the shell); importing; reading
flags; until every scheduler is ready; the HTTP server and SGLang's warm-up request.

``SGLANG_ASCEND_START_REPORT`` names a file that gets the same as JSON, with what SGLang measures in
the slowest scheduler, and with CPU seconds and memory of each process. With several tokenizer
workers SGLang offers no moment of readiness, and there is neither.
"""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path

import psutil

logger = logging.getLogger(__name__)

REPORT_ENV = "SGLANG_ASCEND_START_REPORT"

_marks: dict[str, float] = {}


def mark(phase: str) -> None:
    """The phase of this name ends now."""
    _marks[phase] = time.time()


def phases(process_start: float, marks: dict[str, float], engine_s: float) -> dict[str, float]:
    """Seconds of each phase, in order.

    Args:
        process_start: seconds since the epoch.
        marks: end of each phase, in order, in seconds since the epoch; the last is "warm-up".
        engine_s: seconds until the schedulers were ready, as far as SGLang counted them.
    """
    seconds, last = {}, process_start
    for phase, end in marks.items():
        if phase == "warm-up":
            seconds["engine"] = min(engine_s, end - last)
            last += seconds["engine"]
        seconds[phase] = end - last
        last = end
    return seconds


def report_when_ready(*args, **kwargs):
    """Hook before SGLang's ``launch_server``: give it a callback, beside the caller's own."""
    theirs = kwargs.get("launch_callback")

    def ready() -> None:
        mark("warm-up")
        _report()
        if theirs is not None:
            theirs()

    return args, {**kwargs, "launch_callback": ready}


def _report() -> None:
    from sglang.srt.entrypoints.http_server import get_global_state

    engine = dict(get_global_state().tokenizer_manager.startup_time or {})
    seconds = phases(_process_start(), _marks, engine.get("tokenizer_e2e", 0.0))
    total = sum(seconds.values())
    parts = ", ".join(f"{phase} {value:.1f}" for phase, value in seconds.items())
    logger.info("sglang_ascend: ready in %.1f s: %s", total, parts)
    path = os.environ.get(REPORT_ENV)
    if path:
        report = {
            "total_s": total,
            "phases_s": seconds,
            "engine_s": engine,
            "processes": _processes(),
        }
        Path(path).write_text(json.dumps(report, indent=1) + "\n")


def _process_start() -> float:
    """Seconds since the epoch, to a hundredth; psutil's are as exact as the time of the boot."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    after_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - after_boot)


def _processes() -> list[dict]:
    """Name, CPU seconds, proportional memory (MiB) and threads of this process and its children."""
    own = psutil.Process()
    rows = []
    for process in (own, *own.children(recursive=True)):
        try:
            times, memory = process.cpu_times(), process.memory_full_info()
            rows.append(
                {
                    "name": "main" if process == own else process.cmdline()[0].strip(),
                    "cpu_s": times.user + times.system,
                    "pss_mib": memory.pss / 2**20,
                    "threads": process.num_threads(),
                }
            )
        except (psutil.Error, IndexError):
            continue  # it has ended meanwhile, or belongs to another user
    return rows
