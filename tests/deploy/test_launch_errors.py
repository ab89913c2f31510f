"""Bad input to the launcher: one line, exit code 2, no traceback, nothing left running."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys

import psutil

LIMIT_S = 240


def launch(*flags: str, **environ: str) -> tuple[subprocess.CompletedProcess, list[int]]:
    """Run the launcher to its end; also the processes of its session that outlived it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sglang_ascend.launch_server", "--device", "reference", *flags],
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


def assert_one_clear_line(code: int, stderr: str, expected: str) -> None:
    lines = stderr.splitlines()
    errors = [line for line in lines if line.startswith("error:")]
    assert code == 2, stderr
    assert errors == lines[-1:], stderr
    assert "Traceback" not in stderr
    assert expected in errors[0]


def test_port_in_use(checkpoint):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done, left = launch("--model-path", str(checkpoint), "--port", str(port))
    assert_one_clear_line(done.returncode, done.stderr, f"port {port} on 127.0.0.1 is in use")
    assert done.stdout == ""
    assert not left


def test_refusal_by_the_last_check_of_sglang(checkpoint):
    done, left = launch("--model-path", str(checkpoint), "--schedule-conservativeness", "-1")
    assert_one_clear_line(done.returncode, done.stderr, "schedule_conservativeness must be")
    assert not left


CASES = {
    "--model-path /no/such/model": "embedded models: smollm2-135m-instruct",
    "--model-path {tmp}": "has no config.json",
    "--model-path {checkpoint} --no-such-flag": "unrecognized arguments: --no-such-flag",
    "--model-path {checkpoint} --tp-size two": "invalid int value: 'two'",
    "--model-path {checkpoint} --dtype int4": "--dtype",
    "--model-path {checkpoint} --quantization fp8": "--quantization 'fp8' is not supported",
    "--model-path {checkpoint} --tp-size 4": "attention heads cannot be split over 4 ranks",
    "--model-path {checkpoint} --tp-size 3 --dp-size 2 --enable-dp-attention": "does not divide",
    "--model-path {checkpoint} --max-total-tokens 1000000000000": "lower --max-total-tokens",
    "--model-path {checkpoint} --retraction-policy priority": "--enable-priority-scheduling",
    "--model-path {unknown}": "XyzForCausalLM is not supported by the installed SGLang",
    "--model-path {truncated}": "is truncated",
}
_RUN_ALL = """
import contextlib, io, json, sys
from sglang_ascend.launch_server import main
results = []
for argv in json.load(sys.stdin):
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        code = main(argv)
    results.append([code, errors.getvalue()])
json.dump(results, open(sys.argv[1], "w"))
"""


def test_every_kind_of_bad_input(checkpoint, tmp_path):
    """One process for all of them: importing SGLang takes longer than the checks."""
    unknown, truncated = tmp_path / "unknown", tmp_path / "truncated"
    for copy in (unknown, truncated):
        shutil.copytree(checkpoint, copy)
    (unknown / "config.json").write_text('{"architectures": ["XyzForCausalLM"]}')
    shard = truncated / "model-00001-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    places = {"checkpoint": checkpoint, "unknown": unknown, "truncated": truncated, "tmp": tmp_path}
    calls = [["--device", "reference", *case.format(**places).split()] for case in CASES]
    done = subprocess.run(
        [sys.executable, "-c", _RUN_ALL, str(tmp_path / "results")],
        input=json.dumps(calls),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results").read_text())
    for expected, (code, errors) in zip(CASES.values(), results, strict=True):
        assert_one_clear_line(code, errors, expected)
