"""Runs a kernel's host code on tensors, with guards around every buffer."""

from __future__ import annotations

import ctypes
from itertools import product
from typing import Any

import torch

from sglang_ascend.kernel_proof.native import entry_point
from sglang_ascend.kernels.launching import Backend
from sglang_ascend.kernels.spec import KernelConfig, KernelSpec
from sglang_ascend.ops.spec import OperatorError

TORCH_TYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "i1": torch.bool,
    "u8": torch.uint8,
}
_SCALARS = {
    "i1": ctypes.c_bool,
    "i8": ctypes.c_int8,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "fp32": ctypes.c_float,
}
# Bytes before and behind a buffer, filled with ones: NaN as a float, -1 as an integer.
_GUARD_BYTES = 4096
_GUARD = 0xFF


class _Memref(ctypes.Structure):
    _fields_ = [
        ("allocated", ctypes.c_void_p),
        ("aligned", ctypes.c_void_p),
        ("offset", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("stride", ctypes.c_int64),
    ]


class _Guarded:
    """Copies of the tensors' storages between guards; views share a storage as they did."""

    def __init__(self):
        self.copies: dict[int, tuple[torch.UntypedStorage, torch.Tensor]] = {}

    def memref(self, tensor: torch.Tensor) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.copies:
            copy = torch.full((storage.nbytes() + 2 * _GUARD_BYTES,), _GUARD, dtype=torch.uint8)
            copy[_GUARD_BYTES : _GUARD_BYTES + storage.nbytes()] = _bytes_of(storage)
            self.copies[storage.data_ptr()] = storage, copy
        copy = self.copies[storage.data_ptr()][1]
        start = copy.data_ptr() + _GUARD_BYTES
        start += tensor.storage_offset() * tensor.element_size()
        return ctypes.byref(_Memref(start, start, 0, tensor.numel(), 1))

    def write_back(self, kernel: str) -> None:
        for storage, copy in self.copies.values():
            before, inside, behind = copy.split([_GUARD_BYTES, storage.nbytes(), _GUARD_BYTES])
            if bool((before != _GUARD).any()) or bool((behind != _GUARD).any()):
                raise OperatorError(
                    f"{kernel} wrote outside a buffer of {storage.nbytes()} bytes; nothing was"
                    " copied back"
                )
            _bytes_of(storage).copy_(inside)


def native_backend(target: str = "910C") -> Backend:
    """Runs launchers on CPU tensors through the kernels' host code."""
    return Backend("cpu", target, run_native)


def run_native(
    spec: KernelSpec, config: KernelConfig, grid: tuple[int, ...], arguments: tuple[Any, ...]
) -> None:
    """Run every program of the grid, one after the other; results are written into the tensors."""
    function = entry_point(spec, config)
    guarded = _Guarded()
    scratch = torch.zeros(64, dtype=torch.uint8)
    values = [guarded.memref(scratch), guarded.memref(scratch)]
    types = spec.types(config)
    if len(arguments) != len(types):
        raise OperatorError(f"{spec.name} takes {len(types)} arguments, got {len(arguments)}")
    for (name, kind), value in zip(types.items(), arguments):
        values.append(_value(spec.name, name, kind, value, guarded))
    sizes = (*grid, 1, 1)[:3]
    values += [ctypes.c_int32(size) for size in sizes]
    for z, y, x in product(*(range(size) for size in reversed(sizes))):
        function(*values, ctypes.c_int32(x), ctypes.c_int32(y), ctypes.c_int32(z))
    guarded.write_back(spec.name)


def _value(kernel: str, name: str, kind: str, value: Any, guarded: _Guarded) -> Any:
    if not kind.startswith("*"):
        return _SCALARS[kind](value)
    wanted = TORCH_TYPES[kind[1:]]
    if not isinstance(value, torch.Tensor) or value.dtype != wanted:
        got = getattr(value, "dtype", type(value).__name__)
        raise OperatorError(f"{kernel}: {name} must be a tensor of {wanted}, got {got}")
    return guarded.memref(value)


def _bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(storage)
