"""The whole contract check, once for all tests that look at its report."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sglang_ascend.contract import check, packages, stand_in

PROCESS_TIMEOUT_S = 300


@pytest.fixture(scope="session")
def report() -> check.Report:
    """Every operator on both chips, in processes of their own."""
    return check.check()


@pytest.fixture(scope="session")
def on_torch_npu(tmp_path_factory) -> Callable[..., object]:
    """Run a module in a process with torch_npu; returns the JSON that it prints last."""
    libraries = tmp_path_factory.mktemp("stand_ins")
    stand_in.build(packages.find_torch_npu(), libraries)

    def run(module: str, soc: str = "910C") -> object:
        done = subprocess.run(
            [sys.executable, "-m", module],
            env=check.environment(libraries, soc),
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=PROCESS_TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run
