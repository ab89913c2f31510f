"""Compiling and loading the kernels, work sharing, and life without a compiler."""

import os
import subprocess
import sys
import threading

import pytest
import torch

from sglang_ascend.errors import ConfigError
from sglang_ascend.native import build, matmul


def run(code, **env):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done


NORM = """
import torch
from sglang_ascend.ops.rms_norm import rms_norm
x = torch.arange(16.0).view(2, 8)
print(rms_norm.host(x, torch.ones(8), 1e-5) is NotImplemented)
print(rms_norm(x, torch.ones(8), 1e-5).sum().item())
"""


def test_without_a_compiler_the_references_run_and_one_line_says_so(tmp_path):
    done = run(NORM, CC="no-such-compiler", SGLANG_ASCEND_CACHE=str(tmp_path))
    assert done.stdout.split()[0] == "True" and float(done.stdout.split()[1]) > 0
    assert "no C compiler: no-such-compiler not found; install gcc" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_kernels_can_be_switched_off():
    done = run(NORM, SGLANG_ASCEND_NATIVE="0")
    assert done.stdout.split()[0] == "True" and not done.stderr.strip()


def test_a_failing_compiler_leaves_nothing_behind(tmp_path, monkeypatch):
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'cc: out of luck' >&2\nexit 1\n")
    compiler.chmod(0o755)
    cache = tmp_path / "cache"
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("SGLANG_ASCEND_CACHE", str(cache))
    with pytest.raises(ConfigError, match="did not compile the native kernels: cc: out of luck"):
        build.library()
    assert list(cache.iterdir()) == []


def test_compiled_once_for_a_compiler_and_an_instruction_set(tmp_path, monkeypatch):
    monkeypatch.setenv("SGLANG_ASCEND_CACHE", str(tmp_path))
    first = build.library()
    stamp = first.stat().st_mtime_ns
    assert build.library() == first and first.stat().st_mtime_ns == stamp
    monkeypatch.setattr(build, "_instruction_set", lambda: "another machine")
    assert build.library() != first
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".so", ".so"]


def test_linear_is_torchs_from_several_threads_at_once():
    torch.manual_seed(0)
    weight, bias = torch.randn(300, 257), torch.randn(300)
    inputs = [torch.randn(rows, 257) for rows in (1, 2, 3, 4, 5, 17, 40)] + [torch.randn(2, 3, 257)]
    failures = []

    def work():
        for _ in range(20):
            for x in inputs:
                expected = torch.nn.functional.linear(x, weight, bias)
                if not torch.allclose(matmul.linear(x, weight, bias), expected, atol=1e-4):
                    failures.append(x.shape)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_forked_child_has_threads_of_its_own():
    code = """
import os, torch
from sglang_ascend.native import matmul
torch.set_num_threads(3)
x, weight = torch.randn(8, 512), torch.randn(512, 512)
expected = matmul.linear(x, weight)
child = os.fork()
if not child:
    threads = len(os.listdir("/proc/self/task"))
    same = all(torch.equal(matmul.linear(x, weight), expected) for _ in range(50))
    os._exit(0 if same and len(os.listdir("/proc/self/task")) == threads + 2 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    run(code)
