"""Results of compilations, kept by the hash of everything that they depend on."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from sglang_ascend.models.cache import root


def key_of(*parts: str) -> str:
    """A name for a result that depends on these texts and nothing else."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()[:32]


def stored(key: str, suffix: str, make: Callable[[Path], None]) -> Path:
    """The file of that key; `make(path)` writes it first where it is missing.

    Two processes may make the same file; each writes its own and renames it into place.
    """
    target = root() / "kernels" / f"{key}{suffix}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = target.with_name(f".{key}.{os.getpid()}{suffix}")
        make(scratch)
        scratch.rename(target)
    return target
