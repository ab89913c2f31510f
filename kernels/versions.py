"""The versions of packages with which the kernels were checked, and what to do about others."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from sglang_ascend.errors import ConfigError

TRITON = "triton-ascend==3.2.0"
TORCH_NPU = "torch_npu==2.13.0"


def require_installed(pin: str) -> None:
    """Raise ConfigError unless exactly the version of `pin`, "name==version", is installed."""
    name, wanted = pin.split("==")
    try:
        found = version(name)
    except PackageNotFoundError:
        found = None
    if found != wanted:
        state = f"{name} {found} is installed" if found else f"{name} is not installed"
        raise ConfigError(
            f"{state}, the Triton-Ascend kernels were checked with {wanted}; run"
            f" `pip install --no-deps {pin}`"
        )
