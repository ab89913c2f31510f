"""Results of compilations, kept by the hash of everything that they depend on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from sglang_ascend import cache_folder


def key_of(*parts: str) -> str:
    """A name for a result that depends on these texts and nothing else."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()[:32]


def stored(key: str, suffix: str, make: Callable[[Path], None]) -> Path:
    """The file of that key; `make(path)` writes it first where it is missing."""
    return cache_folder.stored(cache_folder.root() / "kernels" / f"{key}{suffix}", make)
