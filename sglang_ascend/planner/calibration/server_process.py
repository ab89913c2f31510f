"""A server in a process group of its own: started, timed, its memory watched, ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import requests

from sglang_ascend.planner.calibration.closed_loop import Dialect, LoadError, measure

START_TIMEOUT_S = 900.0
#: Between two looks at the memory: a look takes some ms of CPU for every GB.
MEMORY_INTERVAL_S = 2.0
_POLL_S = 0.1


@dataclass(frozen=True)
class Launch:
    """A command and what it adds to the environment."""

    command: list[str]
    env: dict[str, str] = field(default_factory=dict)


class ServerFailed(RuntimeError):
    """A server ended, or did not answer in time; the message ends with what it said last."""


class ServerProcess:
    """``with ServerProcess(...) as server`` has a server that has answered a request.

    Attributes:
        startup_s: from the start of the process to the first answered request (4 tokens in, 1 out).
        peak_memory_bytes: largest sum of the proportional set sizes (PSS: shared pages count once)
            of all its processes, looked at every MEMORY_INTERVAL_S.
    """

    def __init__(self, launch: Launch, port: int, dialect: Dialect, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.startup_s = 0.0
        self.peak_memory_bytes = 0
        self._launch, self._dialect, self._log = launch, dialect, log
        self._ended = threading.Event()

    def __enter__(self) -> ServerProcess:
        began = time.perf_counter()
        with self._log.open("w") as out:
            self._process = subprocess.Popen(
                self._launch.command,
                env={**os.environ, **self._launch.env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._watcher = threading.Thread(target=self._watch_memory, daemon=True)
        self._watcher.start()
        try:
            self._wait(began)
        except BaseException:  # an interrupt too must not leave the server behind
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        self._ended.set()
        self._watcher.join()
        family = _family(self._process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        psutil.wait_procs(family, timeout=30)

    def look_at_memory(self) -> None:
        """Look now; for the end of a measurement."""
        found = sum(_pss(process.pid) for process in _family(self._process.pid))
        self.peak_memory_bytes = max(self.peak_memory_bytes, found)

    def _watch_memory(self) -> None:
        while not self._ended.wait(MEMORY_INTERVAL_S):
            self.look_at_memory()

    def _wait(self, began: float) -> None:
        refused = "nothing listens yet"
        while time.perf_counter() - began < START_TIMEOUT_S:
            if self._process.poll() is not None:
                code = self._process.returncode
                raise ServerFailed(f"ended with exit code {code}: {self._end()}")
            try:
                if not self.startup_s:
                    measure(self.url, self._dialect, [[65, 66, 67, 68]], 1, 1)
                    self.startup_s = time.perf_counter() - began
                if self._is_ready():
                    return
            except (LoadError, requests.RequestException) as error:
                refused = str(error)
            time.sleep(_POLL_S)
        raise ServerFailed(f"no answer after {START_TIMEOUT_S:.0f} s ({refused}): {self._end()}")

    def _is_ready(self) -> bool:
        path = self._dialect.ready
        return path is None or requests.get(self.url + path, timeout=60).status_code == 200

    def _end(self) -> str:
        """The last line that says something; a traceback's last line is its error."""
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines()]
        errors = [line for line in lines if line.startswith("error: ")]
        said = errors or [line for line in lines if line]
        return said[-1][:500] if said else "it said nothing"


def _family(pid: int) -> list[psutil.Process]:
    try:
        head = psutil.Process(pid)
        return [head, *head.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _pss(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:  # it has ended meanwhile
        pass
    return 0
