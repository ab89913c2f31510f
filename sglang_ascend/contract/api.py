"""What our code uses of torch_npu's Python interface: the names, and the npu platform's calls."""

from __future__ import annotations

import os
import pkgutil

import torch

from sglang_ascend.contract import call_sites


def unresolved() -> list[str]:
    """Sites that name something which the loaded torch_npu does not have."""
    missing = []
    for site in call_sites.find():
        if site.kind == "api" and not _exists(site.name):
            missing.append(f"{site}: torch_npu has no such name")
    return missing


def _exists(dotted: str) -> bool:
    try:
        pkgutil.resolve_name(dotted)
    except (AttributeError, ImportError):
        return False
    return True


def platform_answers() -> dict[str, str]:
    """Activate the npu platform as SGLang does, and call each of its methods."""
    os.environ.update(SGLANG_PLATFORM="ascend", SGLANG_ASCEND_DEVICE="npu")
    from sglang_ascend.plugin import host_driver, torchvision_ops

    torchvision_ops.declare_if_missing()
    host_driver.install()
    from sglang.srt.platforms import current_platform as platform

    device = torch.device("npu", 0)
    platform.set_device(device)
    platform.empty_cache()
    platform.synchronize()
    return {
        "class": type(platform).__name__,
        "device": platform.get_device(0),
        "name": platform.get_device_name(0),
        "total bytes": str(platform.get_device_total_memory(0)),
        "free and total bytes": str(platform.get_available_memory(0)),
        "bytes in use": str(platform.get_current_memory_usage(device)),
        "group device": str(platform.get_group_coordinator_device(0)),
        "profiler": str(platform.get_torch_profiler_activity()),
    }
