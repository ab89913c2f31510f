"""Rules of the tree: who may import whom, rooms on the map, small files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = sorted(path.parent.name for path in (ROOT / "sglang_ascend").glob("*/__init__.py"))


def test_rooms_import_downwards_only():
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_code_is_lint_free():
    done = subprocess.run(
        [Path(sys.executable).with_name("ruff"), "check", "--no-cache", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_is_on_the_map(room):
    assert f"| `{room}/` |" in (ROOT / "docs" / "structure.md").read_text()


def test_files_stay_small():
    """A file over 400 lines holds more than one idea."""
    folders = ("sglang_ascend", "kernels", "tests", "benchmark", "launch")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files}
    assert len(sizes) > 50
    assert not {path: size for path, size in sizes.items() if size > 400}


def test_files_named_on_the_map_exist():
    text = (ROOT / "docs" / "structure.md").read_text()
    named = {
        word
        for word in text.replace("`", " ").replace(",", " ").split()
        if "/" in word and word.endswith(".py") and "*" not in word
    }
    assert len(named) > 15
    assert not [name for name in named if not (ROOT / "sglang_ascend" / name).exists()]
