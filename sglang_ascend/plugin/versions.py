"""The SGLang versions that the seams were written and tested for."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from sglang_ascend.errors import ConfigError

SUPPORTED_SGLANG = ("0.5.23",)
INSTALL_COMMAND = f"pip install --no-deps sglang=={SUPPORTED_SGLANG[-1]}"


def check_sglang() -> None:
    """Raise ConfigError unless an SGLang that the seams know is installed."""
    try:
        found = version("sglang")
    except PackageNotFoundError:
        raise ConfigError(
            f"SGLang is not installed; run `{INSTALL_COMMAND}` (its wheel pins a CUDA stack, "
            "hence --no-deps) or use ./launch/serve.sh"
        ) from None
    if found not in SUPPORTED_SGLANG:
        raise ConfigError(
            f"SGLang {found} is installed; supported: {', '.join(SUPPORTED_SGLANG)}; "
            f"run `{INSTALL_COMMAND}`"
        )
