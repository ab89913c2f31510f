"""SGLang on a CPU with no more than it asks of an out-of-tree platform.

``SGLANG_PLATFORM`` selects it; SGLang then leaves out the hooks of every other distribution that
offers a platform, this package's among them.
"""

from __future__ import annotations

from sglang.srt.platforms.interface import PlatformCapabilities, PlatformEnum, SRTPlatform

from sglang_ascend.plugin.cpu_device import CpuDevice


def activate() -> str:
    """Entry point ``sglang.srt.platforms``."""
    from sglang_ascend.plugin import host_driver, torchvision_ops

    # Both only let SGLang's modules be imported beside triton-ascend and a CPU build of torch.
    torchvision_ops.declare_if_missing()
    host_driver.install()
    return f"{__name__}:BarePlatform"


class BarePlatform(CpuDevice, SRTPlatform):
    _enum = PlatformEnum.OOT
    device_name = "bare"
    capabilities = PlatformCapabilities()
    supported_quantization: list[str] = []

    def get_device_name(self, device_id: int = 0) -> str:
        return "cpu"

    def get_default_attention_backend(self) -> str:
        return "torch_native"

    def get_compile_backend(self, mode: str | None = None) -> str:
        return "eager"

    def get_dispatch_key_name(self) -> str:
        return "native"
