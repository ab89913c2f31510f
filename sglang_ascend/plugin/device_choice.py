"""Which device serves: ``npu`` (torch_npu and CANN) or ``reference`` (CPU).

The choice is made once, by the launcher, and travels to every process in
``SGLANG_ASCEND_DEVICE``. One SGLang platform entry point serves both devices, because SGLang
excludes the hooks of every distribution that offers a platform which was not selected, ours
included if it offered two.
"""

from __future__ import annotations

import ctypes.util
import os
from dataclasses import dataclass
from typing import Literal

from sglang_ascend.deploy.dependencies import installed_version
from sglang_ascend.errors import ConfigError

Device = Literal["npu", "reference"]
DEVICE_ENV = "SGLANG_ASCEND_DEVICE"
REQUESTS = ("auto", "npu", "reference")
#: torch_npu follows torch's version number and refuses any other torch.
TORCH_NPU_VERSION = "2.13.0"
_CANN_LIBRARIES = ("ascendcl", "hccl")


@dataclass(frozen=True)
class DeviceChoice:
    """The device that serves, and the sentence that tells the user why."""

    device: Device
    reason: str


def missing_for_npu() -> str | None:
    """The first thing that keeps this machine from serving on ``npu``, or None.

    Reads package metadata and library paths only: importing torch_npu without CANN breaks
    ``import torch`` in the same process.
    """
    torch_npu = installed_version("torch_npu")
    if torch_npu is None:
        return (
            "torch_npu is not installed; install it with "
            f"`pip install torch_npu=={TORCH_NPU_VERSION}` (the extra [npu] of sglang-ascend)"
        )
    torch = (installed_version("torch") or "none").split("+")[0]
    if torch_npu.split(".post")[0] != torch:
        return (
            f"torch {torch} and torch_npu {torch_npu} do not match; install both at one version, "
            f"e.g. `pip install torch=={TORCH_NPU_VERSION} torch_npu=={TORCH_NPU_VERSION}`"
        )
    missing = [name for name in _CANN_LIBRARIES if not _find_library(name)]
    if missing:
        names = ", ".join(f"lib{name}.so" for name in missing)
        return (
            f"CANN is not usable: {names} not found on the library path; install the CANN toolkit "
            "and run `source /usr/local/Ascend/ascend-toolkit/set_env.sh` in this shell"
        )
    return None


def choose(request: str) -> DeviceChoice:
    """Turn ``auto``, ``npu`` or ``reference`` into a device.

    Raises:
        ConfigError: for an unknown request, or for ``npu`` where something is missing.
    """
    if request not in REQUESTS:
        raise ConfigError(f"--device {request!r} is unknown; choose one of {', '.join(REQUESTS)}")
    if request == "reference":
        return DeviceChoice("reference", "asked for with --device reference")
    missing = missing_for_npu()
    if request == "npu":
        if missing:
            raise ConfigError(f"--device npu cannot be used: {missing}; or use --device reference")
        return DeviceChoice("npu", "asked for with --device npu")
    if missing:
        return DeviceChoice("reference", f"auto: no usable NPU here ({missing})")
    return DeviceChoice("npu", "auto: torch_npu and CANN are present")


def publish(choice: DeviceChoice, environ=os.environ) -> None:
    """Write the choice where this process and its children find it, before torch is imported."""
    environ[DEVICE_ENV] = choice.device
    environ["SGLANG_PLATFORM"] = "ascend"
    if choice.device == "reference":
        # A torch_npu without CANN would otherwise break `import torch` itself.
        environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"


def current(environ=os.environ) -> DeviceChoice:
    """The published choice, or ``auto`` where SGLang was started without our launcher."""
    return choose(environ.get(DEVICE_ENV, "auto"))


def _find_library(name: str) -> bool:
    directories = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    on_path = any(os.path.exists(os.path.join(d, f"lib{name}.so")) for d in directories if d)
    return on_path or ctypes.util.find_library(name) is not None
