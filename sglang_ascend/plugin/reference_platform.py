"""Platform ``reference``: CPU, gloo, plain torch. The executable definition of every operator."""

from __future__ import annotations

import psutil
import torch

from sglang_ascend.plugin.platform_base import AscendPlatformBase


class ReferencePlatform(AscendPlatformBase):
    device_name = "reference"
    device_type = "cpu"

    def get_device(self, device_id: int | None = None) -> str:
        return "cpu"

    def set_device(self, device: torch.device) -> None:
        pass

    def get_device_name(self, device_id: int = 0) -> str:
        return "reference (CPU)"

    def get_device_total_memory(self, device_id: int = 0) -> int:
        return psutil.virtual_memory().total

    def get_available_memory(self, device_id: int = 0) -> tuple[int, int]:
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    def get_current_memory_usage(self, device: torch.device | None = None) -> float:
        return float(psutil.Process().memory_info().rss)

    def get_torch_profiler_activity_str(self) -> str:
        return "CPU"

    def get_torch_profiler_activity(self) -> torch.profiler.ProfilerActivity:
        return torch.profiler.ProfilerActivity.CPU
