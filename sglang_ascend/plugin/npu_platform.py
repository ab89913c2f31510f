"""Platform ``npu``: Ascend 910B / 910C through torch_npu and HCCL."""

from __future__ import annotations

import torch

from sglang_ascend.plugin.platform_base import AscendPlatformBase


class NpuPlatform(AscendPlatformBase):
    device_name = "npu"
    device_type = "npu"

    def get_device(self, device_id: int | None = None) -> str:
        return "npu" if device_id is None else f"npu:{device_id}"

    def set_device(self, device: torch.device) -> None:
        torch.npu.set_device(device)

    def get_device_name(self, device_id: int = 0) -> str:
        return torch.npu.get_device_name(device_id)

    def get_device_total_memory(self, device_id: int = 0) -> int:
        return torch.npu.mem_get_info(device_id)[1]

    def get_available_memory(self, device_id: int = 0) -> tuple[int, int]:
        return torch.npu.mem_get_info(device_id)

    def get_current_memory_usage(self, device: torch.device | None = None) -> float:
        return float(torch.npu.max_memory_allocated(device))

    def empty_cache(self) -> None:
        torch.npu.empty_cache()

    def synchronize(self) -> None:
        torch.npu.synchronize()

    def get_group_coordinator_device(self, local_rank: int) -> torch.device:
        return torch.device(f"npu:{local_rank}")

    def get_torch_profiler_activity_str(self) -> str:
        return "NPU"

    def get_torch_profiler_activity(self) -> torch.profiler.ProfilerActivity:
        import torch_npu

        return torch_npu.profiler.ProfilerActivity.NPU
