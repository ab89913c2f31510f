"""A folder of generated files that is either whole or absent, whatever interrupts its making.

Files are written into a scratch folder beside the target, flushed to disk, listed with size and
SHA-256 in a manifest, and the folder is renamed into place. A file lock keeps two makers apart; the
kernel releases it when its holder is killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sglang_ascend.cache_folder import CACHE_ENV
from sglang_ascend.cache_folder import root as root
from sglang_ascend.errors import ConfigError

MANIFEST = "complete.json"
LOCK_WAIT_S = 600.0


def fault(folder: Path) -> str | None:
    """Why ``folder`` is not what was published there, or None.

    A file with the recorded size and modification time is taken as unchanged; any other is hashed,
    so that an ordinary start does not read half a gigabyte twice.
    """
    try:
        files = json.loads((folder / MANIFEST).read_text())["files"]
        for name, entry in files.items():
            stat = (folder / name).stat()
            if stat.st_size != entry["bytes"]:
                return f"{name} has {stat.st_size} bytes instead of {entry['bytes']}"
            if stat.st_mtime_ns != entry["mtime_ns"] and sha256(folder / name) != entry["sha256"]:
                return f"{name} was changed"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{MANIFEST} is unreadable ({type(error).__name__}: {error})"
    return None


def publish(folder: Path, build: Callable[[Path], None], needs_bytes: int) -> Path:
    """Make ``folder`` whole: call ``build(scratch)`` unless it is whole already.

    Args:
        folder: the target; its parent is created.
        build: fills the empty scratch folder that it is given.
        needs_bytes: free disk space that the files need.

    Raises:
        ConfigError: no space, no permission, or another process kept the lock for LOCK_WAIT_S.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            if fault(folder) is None:
                return folder
            _remove_leftovers(folder)
            _check_space(folder, needs_bytes)
            scratch = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
            scratch.mkdir()
            build(scratch)
            _seal(scratch)
            scratch.rename(folder)
            flush(folder.parent)
    except OSError as error:
        raise ConfigError(
            f"cannot write the model cache {folder.parent}: {error.strerror or error}; "
            f"point {CACHE_ENV} to a writable folder"
        ) from error
    return folder


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with open(folder.with_name(f".{folder.name}.lock"), "a") as handle:
        deadline = time.monotonic() + LOCK_WAIT_S
        waiting = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ConfigError(
                        f"another process has been preparing {folder} for {LOCK_WAIT_S:.0f} s; "
                        f"wait for it, or end it and delete {folder.parent}"
                    ) from None
                if not waiting:
                    print(f"waiting for another process to prepare {folder.name}", file=sys.stderr)
                waiting = True
                time.sleep(0.2)
        yield


def _remove_leftovers(folder: Path) -> None:
    """Delete a broken target and the scratch folders of makers that died (we hold the lock)."""
    for leftover in [*folder.parent.glob(f".{folder.name}.*.tmp"), folder]:
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover)
        elif leftover.exists() or leftover.is_symlink():
            leftover.unlink()


def _check_space(folder: Path, needs_bytes: int) -> None:
    free = shutil.disk_usage(folder.parent).free
    if free < needs_bytes:
        raise ConfigError(
            f"{folder.parent} has {free >> 20} MiB free, preparing {folder.name} needs "
            f"{needs_bytes >> 20} MiB; free some space or point {CACHE_ENV} elsewhere"
        )


def _seal(scratch: Path) -> None:
    """Flush every file, then write the manifest that makes the folder count as whole."""
    files = {}
    for path in sorted(p for p in scratch.rglob("*") if p.is_file()):
        path.chmod(0o644)
        flush(path)
        stat = path.stat()
        files[str(path.relative_to(scratch))] = {
            "bytes": stat.st_size,
            "mtime_ns": stat.st_mtime_ns,
            "sha256": sha256(path),
        }
    (scratch / MANIFEST).write_text(json.dumps({"files": files}, indent=1))
    flush(scratch / MANIFEST)
    flush(scratch)


def sha256(path: Path) -> str:
    """Digest of the file's content, in hexadecimal."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def flush(path: Path) -> None:
    """Have the file, or a folder's list of files, on the disk before what comes next."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
