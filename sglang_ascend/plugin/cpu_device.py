"""What SGLang asks a platform about its device, where that is the CPU."""

from __future__ import annotations

import psutil
import torch


class CpuDevice:
    """Part of a platform class: names the device and tells its memory, in bytes."""

    device_type = "cpu"

    def get_device(self, device_id: int | None = None) -> str:
        return "cpu"

    def set_device(self, device: torch.device) -> None:
        pass

    def get_device_total_memory(self, device_id: int = 0) -> int:
        return psutil.virtual_memory().total

    def get_available_memory(self, device_id: int = 0) -> tuple[int, int]:
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    def get_current_memory_usage(self, device: torch.device | None = None) -> float:
        return float(psutil.Process().memory_info().rss)
