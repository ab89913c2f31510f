"""The folder of generated files, and files in it that are made once."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

CACHE_ENV = "SGLANG_ASCEND_CACHE"


def root() -> Path:
    """The cache folder: $SGLANG_ASCEND_CACHE, else the user's XDG cache folder."""
    if chosen := os.environ.get(CACHE_ENV):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "sglang_ascend"


def stored(target: Path, make: Callable[[Path], None]) -> Path:
    """``target``; ``make(path)`` writes it first where it is missing.

    Two processes may make the same file; each writes its own and renames it into place, so none
    ever reads half a file, and one that fails leaves nothing.
    """
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            scratch = Path(folder) / target.name
            make(scratch)
            scratch.rename(target)
    return target
