"""Packages that have to go in with ``pip install --no-deps``, and what if they did not."""

from __future__ import annotations

import importlib.metadata
import importlib.resources

from sglang_ascend.errors import ConfigError


def pins() -> tuple[str, ...]:
    """The exact requirements of ``requirements/no-deps.txt``, such as ``sglang==0.5.23``."""
    text = importlib.resources.files(__package__).joinpath("no-deps.txt").read_text()
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


def install_command() -> str:
    """The command that completes ``pip install sglang-ascend``."""
    return "pip install --no-deps " + " ".join(pins())


def check() -> None:
    """Raise ConfigError where a package is missing, or where two distributions share ``triton``."""
    missing = [pin for pin in pins() if installed_version(pin.partition("==")[0]) is None]
    if missing:
        raise ConfigError(f"not installed: {', '.join(missing)}; run `{install_command()}`")
    if upstream := installed_version("triton"):
        ours = next(pin for pin in pins() if pin.startswith("triton-ascend"))
        raise ConfigError(
            f"upstream triton {upstream} is installed over {ours}, and both own the import name "
            "`triton`; run `pip uninstall -y triton triton-ascend` and then "
            f"`pip install --no-deps {ours}`"
        )


def installed_version(distribution: str) -> str | None:
    """Version of an installed distribution, or None, without importing it."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
