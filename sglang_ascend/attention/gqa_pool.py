"""K/V cache pool on the host whose memory is taken page by page, when it is first written.

``torch.zeros`` writes its zeros, so that a pool for 65,536 tokens of a small model takes gigabytes
and a second or more of the start, whatever is then served. Fresh anonymous pages read as zeros.
"""

from __future__ import annotations

import math

import torch
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
from torch.overrides import TorchFunctionMode

from sglang_ascend.native import arena


class ZerosOnDemand(TorchFunctionMode):
    """Within it, ``torch.zeros`` on the CPU returns memory that nobody has written yet."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        device = torch.device(kwargs.get("device") or "cpu")
        plain = set(kwargs) <= {"dtype", "device"} and len(args) == 1
        if func is not torch.zeros or device.type != "cpu" or not plain:
            return func(*args, **kwargs)
        return zeros_on_demand(args[0], kwargs.get("dtype") or torch.get_default_dtype())


def zeros_on_demand(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Zeros of this shape, contiguous, from a mapping of their own that ends with them."""
    size = math.prod(shape) * dtype.itemsize
    if size == 0:
        return torch.zeros(tuple(shape), dtype=dtype)
    return arena.mapped(size).view(dtype).view(tuple(shape))


class OnDemandGqaPool(MHATokenToKVPool):
    """SGLang's pool, with ``ZerosOnDemand`` on the CPU."""

    def _create_buffers_normal(self) -> None:
        with ZerosOnDemand():
            super()._create_buffers_normal()
