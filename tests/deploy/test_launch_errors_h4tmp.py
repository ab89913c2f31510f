"""Bad input to the launcher: one line, exit code 2, no traceback, nothing left running."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import psutil
import pytest

LIMIT_S = 240


def launch(*flags: str, **environ: str) -> tuple[subprocess.CompletedProcess, list[int]]:
    """Run the launcher to its end; also the processes of its session that outlived it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "h4_launch", "--device", "reference", *flags],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    finally:
        left = [p.pid for p in psutil.process_iter() if _session(p.pid) == process.pid]
        for pid in left:
            psutil.Process(pid).kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err), left


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def assert_one_clear_line(flags, *expected: str) -> None:
    done, left = launch(*flags)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert done.returncode == 2, done.stderr
    assert len(errors) == 1 and done.stderr.splitlines()[-1] == errors[0], done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    for part in expected:
        assert part in errors[0]
    assert not left


def test_missing_model():
    assert_one_clear_line(["--model-path", "/no/such/model"], "embedded models: smollm2")


def test_truncated_shard(checkpoint):
    shard = checkpoint / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    assert_one_clear_line(["--model-path", str(checkpoint)], shard.name, "truncated")


def test_port_in_use(checkpoint):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert_one_clear_line(
            ["--model-path", str(checkpoint), "--port", str(port)], f"port {port}", "in use"
        )


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--tp-size", "4"], "attention heads cannot be split"),
        (["--max-total-tokens", str(10**15)], "lower --max-total-tokens"),
        (["--tp-size", "two"], "--tp-size"),
        (["--no-such-flag"], "--no-such-flag"),
        # Refused by SGLang itself: in its argument resolution, and in its last check.
        (["--mem-fraction-static", "0.5", "--cpu-offload-gb", "1", "--ple-offload-embedding"], "ple"),
        (["--schedule-conservativeness", "-1"], "schedule_conservativeness"),
    ],
)
def test_flags(checkpoint, flags, expected):
    assert_one_clear_line(["--model-path", str(checkpoint), *flags], expected)
