"""Platform ``reference``: CPU, gloo, plain torch. The executable definition of every operator."""

from __future__ import annotations

import torch

from sglang_ascend.plugin.cpu_device import CpuDevice
from sglang_ascend.plugin.platform_base import AscendPlatformBase


class ReferencePlatform(CpuDevice, AscendPlatformBase):
    device_name = "reference"

    def get_device_name(self, device_id: int = 0) -> str:
        return "reference (CPU)"

    def get_torch_profiler_activity_str(self) -> str:
        return "CPU"

    def get_torch_profiler_activity(self) -> torch.profiler.ProfilerActivity:
        return torch.profiler.ProfilerActivity.CPU
