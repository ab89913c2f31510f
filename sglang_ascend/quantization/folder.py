"""A checkpoint folder in the making: resumed after an interruption, never loadable before its end.

Finished files are listed with size and SHA-256 in a state file, beside what they were made from.
A file is written under another name and renamed; ``config.json``, without which nothing loads the
folder, comes last.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sglang_ascend.errors import ConfigError
from sglang_ascend.models.cache import flush, sha256

STATE = "quantize_state.json"
LAST = "config.json"


class UnfinishedFolder:
    """The output folder of one run; a lock keeps a second run out."""

    def __init__(self, folder: Path, made_from: dict[str, Any], restart: bool = False) -> None:
        """Open, resume or start ``folder``.

        Args:
            made_from: source and options, as JSON; only a folder made from the same is resumed.
            restart: remove what an earlier run left, whatever it was made from.

        Raises:
            ConfigError: a folder that this program did not make, one made from something else, one
                that another run is writing, or one that cannot be written.
        """
        self.folder = folder
        self._state: dict[str, Any] = {"made_from": made_from, "files": {}}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # The lock is on the folder itself, so that it leaves no file behind.
            self._lock = os.open(folder, os.O_RDONLY)
        except OSError as error:
            raise ConfigError(f"cannot write {folder}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._begin(restart)
        except BaseException as error:
            self.close()
            if isinstance(error, BlockingIOError):
                raise ConfigError(
                    f"another run is writing {folder}; wait for it or give another folder"
                ) from None
            if isinstance(error, OSError):
                raise ConfigError(f"cannot write {folder}: {error.strerror}") from error
            raise

    def _begin(self, restart: bool) -> None:
        known, made_from = self._read_state(), self._state["made_from"]
        if known is None:
            if any(path.name != f".{STATE}.tmp" for path in self.folder.iterdir()):
                raise ConfigError(
                    f"{self.folder} is not empty and was not made by this program; give a new "
                    "folder"
                )
            self._write_state()
        elif restart:
            self._remove(known)
        elif known["made_from"] == made_from:
            self._state = known
        else:
            raise ConfigError(
                f"{self.folder} was begun with {_differences(known['made_from'], made_from)}; "
                "repeat that, give another folder, or --restart to replace what is in it"
            )

    def has(self, name: str) -> bool:
        """Whether the file was finished, and is still what was written."""
        entry, path = self._state["files"].get(name), self.folder / name
        return (
            entry is not None
            and path.is_file()
            and path.stat().st_size == entry["bytes"]
            and sha256(path) == entry["sha256"]
        )

    def note(self, name: str) -> Any:
        """What ``add`` was told about a finished file."""
        return self._state["files"][name]["note"]

    def add(self, name: str, write: Callable[[Path], None], note: Any = None) -> None:
        """Write one file: ``write(path)`` fills it under another name.

        Raises:
            ConfigError: the disk is full or not writable.
        """
        path = self.folder / name
        scratch = path.with_name(f".{name}.tmp")
        try:
            write(scratch)
            scratch.chmod(0o644)
            flush(scratch)
            entry = {"bytes": scratch.stat().st_size, "sha256": sha256(scratch), "note": note}
            # Listed before it exists: a file that is not listed would never be removed.
            self._state["files"][name] = entry
            self._write_state()
            scratch.rename(path)
            flush(self.folder)
        except OSError as error:
            raise ConfigError(
                f"cannot write {path}: {error.strerror or error}; free some space and run the same "
                "command again, it goes on where it stopped"
            ) from error

    def add_json(self, name: str, content: Any) -> None:
        """Write ``content`` as JSON."""
        self.add(name, lambda path: path.write_text(json.dumps(content, indent=1) + "\n"))

    def close(self) -> None:
        """Let other runs in."""
        os.close(self._lock)

    def _read_state(self) -> dict[str, Any] | None:
        path = self.folder / STATE
        if not path.exists():
            return None
        try:
            known = json.loads(path.read_text())
            known["made_from"], known["files"]  # noqa: B018
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{path} is damaged ({type(error).__name__}); delete the folder or give another"
            ) from error
        return known

    def _write_state(self) -> None:
        scratch = self.folder / f".{STATE}.tmp"
        scratch.write_text(json.dumps(self._state, indent=1))
        flush(scratch)
        scratch.rename(self.folder / STATE)

    def _remove(self, known: dict[str, Any]) -> None:
        # First what makes the folder loadable.
        for name in sorted(known["files"], key=lambda name: name != LAST):
            (self.folder / name).unlink(missing_ok=True)
        for path in self.folder.glob(".*.tmp"):
            path.unlink()
        self._write_state()


def _differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    named = [
        f"{key} {old.get(key)!r} (now {new.get(key)!r})"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]
    return ", ".join(named)
