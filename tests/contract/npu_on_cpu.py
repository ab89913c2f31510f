"""The npu device of the stand-in, with its computing done by the CPU.

The stand-in's device memory is host memory, so every npu tensor can be seen as a CPU tensor without
a copy. This mode lets torch_npu allocate and make views, and runs everything else on those: aten
operators as they are, torch_npu's own as `tests/ops/npu_semantics.py` has them from the
documentation. Nothing here says how fast, or how exact, an NPU is.
"""

from __future__ import annotations

import ctypes

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from tests.ops import npu_semantics

_ALLOCATE = ("aten::empty", "aten::empty_strided")
_NOTHING_TO_DO = ("aten::record_stream",)
_libraries: list[torch.library.Library] = []


def implement_npu_operators() -> None:
    """Give the real torch_npu's operators their documented meaning on CPU tensors."""
    library = torch.library.Library("npu", "IMPL")
    for schema in npu_semantics.SCHEMAS:
        name = schema.partition("(")[0]
        library.impl(name, getattr(npu_semantics, name), "CPU")
    _libraries.append(library)


class NpuOnCpu(TorchDispatchMode):
    """Counts the torch_npu operators that ran, by name, in `calls`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, int] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = func._schema.name
        target = kwargs.get("device")
        leaves = tree_leaves((args, kwargs))
        here = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and _on_npu(leaf.device)]
        to_npu = bool(here) if target is None else _on_npu(torch.device(target))
        if not here and not to_npu or func.is_view or name in _ALLOCATE:
            return func(*args, **kwargs)
        if name in _NOTHING_TO_DO:
            return None
        if func.namespace == "npu":
            self.calls[name] = self.calls.get(name, 0) + 1
        if target is not None:
            kwargs["device"] = torch.device("cpu")
        seen = {}

        def on_cpu(tensor: torch.Tensor) -> torch.Tensor:
            if not _on_npu(tensor.device):
                return tensor
            alias = as_cpu(tensor)
            seen[id(alias)] = (alias, tensor)
            return alias

        args, kwargs = tree_map_only(torch.Tensor, on_cpu, (args, kwargs))
        results = func(*args, **kwargs)

        def back(result):
            if not isinstance(result, torch.Tensor):
                return result
            if id(result) in seen:
                return seen[id(result)][1]
            return as_npu(result) if to_npu else result

        return tree_map(back, results)


def _on_npu(device: torch.device) -> bool:
    return device.type == "npu"


def as_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a CPU tensor."""
    storage = tensor.untyped_storage()
    if storage.nbytes() == 0:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    buffer = (ctypes.c_ubyte * storage.nbytes()).from_address(storage.data_ptr())
    memory = torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()
    place = (tensor.storage_offset(), tensor.shape, tensor.stride())
    return torch.empty(0, dtype=tensor.dtype).set_(memory, *place)


def as_npu(result: torch.Tensor) -> torch.Tensor:
    """A copy in the memory of the device."""
    made = torch.empty_strided(result.shape, result.stride(), dtype=result.dtype, device="npu")
    as_cpu(made).copy_(result)
    return made
