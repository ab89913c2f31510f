"""A real server process for tests: started once, stopped with everything it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import requests

from sglang_ascend.planner.calibration.ports import free_port

START_TIMEOUT_S = 300


class RunningServer:
    """``python -m sglang_ascend.launch_server`` in a process group of its own.

    within: a command that runs another one elsewhere, such as in a network namespace.
    """

    def __init__(
        self,
        *flags: str,
        log: Path,
        env: dict[str, str] | None = None,
        within: Sequence[str] = (),
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        self.flags = flags
        python = [*within, sys.executable, "-m"]
        command = [*python, "sglang_ascend.launch_server", "--port", str(self.port)]
        with log.open("w") as out:
            self.process = subprocess.Popen(
                [*command, "--device", "reference", *flags],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )

    def wait_until_ready(self) -> RunningServer:
        """Block until a token can be generated; fail with the log's end if it takes too long."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                code = self.process.returncode
                raise AssertionError(f"server exited with {code}:\n{self.tail()}")
            try:
                if requests.get(f"{self.url}/health_generate", timeout=20).status_code == 200:
                    return self
            except requests.RequestException:
                pass
            time.sleep(0.5)
        self.stop()
        raise AssertionError(f"server not ready after {START_TIMEOUT_S} s:\n{self.tail()}")

    def tail(self, lines: int = 40) -> str:
        """The last lines of the server's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def post(self, path: str, body, timeout: float = 120) -> requests.Response:
        return requests.post(self.url + path, json=body, timeout=timeout)

    def get(self, path: str, timeout: float = 30) -> requests.Response:
        return requests.get(self.url + path, timeout=timeout)

    def generate(self, body: dict, timeout: float = 240) -> dict | list[dict]:
        """SGLang's native ``/generate``; raises on any status but 200."""
        response = self.post("/generate", body, timeout)
        assert response.status_code == 200, f"{response.status_code}: {response.text}"
        return response.json()

    def flush_cache(self) -> None:
        """Empty the radix cache; waits for running requests to end, boundedly."""
        for _ in range(100):
            if self.post("/flush_cache", None).status_code == 200:
                return
            time.sleep(0.1)
        raise AssertionError(f"the cache could not be flushed:\n{self.tail()}")

    def stop(self) -> None:
        """End the whole process group at once: SGLang's orderly stop takes ten seconds and more."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
