"""The only room that touches SGLang from outside: entry points, platforms, seam ledger.

SGLang calls ``activate_platform`` while ``sglang.srt.utils.common`` is half imported, and ``load``
at the start of every process. Both must stay cheap to import.
"""

from __future__ import annotations


def activate_platform() -> str:
    """Entry point ``sglang.srt.platforms``: prepare this process, return the platform's path."""
    from sglang_ascend.plugin import (
        device_choice,
        generic_device,
        host_driver,
        torchvision_ops,
        versions,
    )

    versions.check_sglang()
    torchvision_ops.declare_if_missing()
    if device_choice.current().device == "npu":
        generic_device.hide_npu()
        return "sglang_ascend.plugin.npu_platform:NpuPlatform"
    host_driver.install()
    return "sglang_ascend.plugin.reference_platform:ReferencePlatform"


def load() -> None:
    """Entry point ``sglang.srt.plugins``: install every seam that this process kind needs."""
    from sglang_ascend.plugin import device_choice, install, process_kind

    install.install(process_kind.detect(), device_choice.current().device)
