"""What is missing is named, with the command that brings it; exit code 2 and one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_ascend.contract import packages, stand_in
from sglang_ascend.contract.__main__ import main
from sglang_ascend.errors import ConfigError
from sglang_ascend.plugin import doctor
from sglang_ascend.plugin.device_choice import TORCH_NPU_VERSION

ROOT = Path(__file__).parents[2]


def _installed(folder: Path, version: str) -> Path:
    info = folder / f"torch_npu-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch_npu\nVersion: {version}\n")
    return folder


def _refusal(capsys, *flags: str) -> str:
    assert main(list(flags)) == 2
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if not line.startswith("...")]
    assert len(lines) == 1 and lines[0].startswith("error: ") and captured.out == ""
    return lines[0]


def test_without_torch_npu(capsys, tmp_path):
    line = _refusal(capsys, "--packages", str(tmp_path))
    assert f"needs torch_npu {TORCH_NPU_VERSION} in {tmp_path}" in line
    assert f"--no-deps --target {tmp_path} torch_npu=={TORCH_NPU_VERSION}`" in line


def test_another_version(capsys, tmp_path):
    line = _refusal(capsys, "--packages", str(_installed(tmp_path, "2.14.0")))
    assert f"torch_npu 2.14.0 is in {tmp_path}; the contract is promised for" in line
    assert f"`rm -r {tmp_path}`" in line


def test_another_torch(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "installed_version", lambda name: "2.14.0+cpu")
    with pytest.raises(ConfigError, match=r"torch is 2\.14\.0, .* needs the same version; run"):
        packages.find_torch_npu(_installed(tmp_path, TORCH_NPU_VERSION))


def test_without_gcc(tmp_path):
    """In a process whose path has everything but the compiler."""
    for tool in ("nm", "env"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    done = subprocess.run(
        [sys.executable, "-m", "sglang_ascend.contract", "rms_norm"],
        env={**os.environ, "PATH": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = [line for line in done.stderr.splitlines() if not line.startswith("...")]
    assert done.returncode == 2 and done.stdout == ""
    assert lines == [
        "error: gcc not found; the contract check builds stand-ins for CANN's libraries;"
        " run `sudo apt-get install -y gcc libc6-dev`"
    ]


def test_a_failing_compiler_gives_its_reason(tmp_path, monkeypatch):
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "gcc").write_text("#!/bin/sh\necho 'stdlib.h: No such file' >&2\nexit 1\n")
    (tools / "gcc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    with pytest.raises(ConfigError, match=r"failed: gcc -O1: stdlib\.h: No such file"):
        stand_in.build(packages.find_torch_npu(), tmp_path)


@pytest.mark.parametrize("flags", [("no_operator",), ("--soc", "910D")])
def test_unknown_names(capsys, flags):
    line = _refusal(capsys, *flags)
    assert f"unknown: {flags[-1]}; choose among " in line


def test_one_version_everywhere():
    for name in ("contract.txt", "npu.txt"):
        assert f"torch_npu=={TORCH_NPU_VERSION}" in (ROOT / "requirements" / name).read_text()
    assert f"torch=={TORCH_NPU_VERSION}" in (ROOT / "requirements/serve.txt").read_text()


def test_doctor_says_which_versions_are_promised():
    rows = dict(doctor.version_rows())
    assert rows["torch_npu"].split() == ["not", "installed", "promised:", TORCH_NPU_VERSION]
    assert rows["sglang"].endswith("promised: 0.5.23")
    assert rows["triton-ascend"].endswith("promised: 3.2.0")


def test_the_main_environment_has_no_torch_npu():
    assert packages.installed_version("torch_npu") is None
    assert packages.version_in() == TORCH_NPU_VERSION
