"""The arguments of a call without their values: what a server recorded, and tensors made from it.

A description is JSON. A tensor is {"tensor": shape, "dtype": name, "fill": number} and "stride"
where it is not contiguous; lists of tensors are lists of those; all else stands for itself. A
tensor full of `fill` is as good an argument as the real one: `fill` is the smallest value of an
integer tensor, since operators bound sums of integers from above, and the largest of a float
tensor, since some of its values have to be positive.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

_PLAIN = (bool, int, float, str, type(None))


def describe(value: Any) -> Any:
    """Description of one argument; raises TypeError for what cannot be written down."""
    if isinstance(value, torch.Tensor):
        return _describe_tensor(value)
    if isinstance(value, (list, tuple)):
        return [describe(item) for item in value]
    if isinstance(value, torch.dtype):
        return {"torch_dtype": _name(value)}
    if isinstance(value, _PLAIN):
        return value
    raise TypeError(f"an argument of type {type(value).__name__} has no description")


def _describe_tensor(tensor: torch.Tensor) -> dict[str, Any]:
    description = {"tensor": list(tensor.shape), "dtype": _name(tensor.dtype), "fill": 0}
    if not tensor.is_contiguous():
        description["stride"] = list(tensor.stride())
    if tensor.numel() and tensor.device.type == "cpu":
        if tensor.is_floating_point():
            largest = float(tensor.max())
            description["fill"] = round(largest, 3) if math.isfinite(largest) else 0
        else:
            description["fill"] = int(tensor.min())
    return description


def build(description: Any, device: torch.device) -> Any:
    """The argument that `describe` described, on a device; tensors are full of their `fill`."""
    if isinstance(description, list):
        return [build(item, device) for item in description]
    if not isinstance(description, Mapping):
        return description
    if "torch_dtype" in description:
        return getattr(torch, description["torch_dtype"])
    shape, dtype = description["tensor"], getattr(torch, description["dtype"])
    stride = description.get("stride") or torch.empty(shape, device="meta").stride()
    span = 1 + sum((size - 1) * step for size, step in zip(shape, stride)) if all(shape) else 0
    # Zeros cost no memory before they are read; only some tensors need another value.
    flat = torch.zeros(span, dtype=dtype, device=device)
    if description.get("fill"):
        flat.fill_(description["fill"])
    return flat.as_strided(shape, stride)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def without_fill(description: Any) -> Any:
    """The description with shapes only, which two calls of one kind have in common."""
    if isinstance(description, list):
        return [without_fill(item) for item in description]
    if isinstance(description, Mapping):
        return {key: value for key, value in description.items() if key != "fill"}
    return description


class CallRecorder:
    """Appends every new kind of call of this process to `<folder>/<process id>.jsonl`."""

    def __init__(self, folder: str) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self._path = Path(folder) / f"{os.getpid()}.jsonl"
        self._seen: set[str] = set()

    def record(self, operator: str, arguments: Mapping[str, Any]) -> None:
        described = {name: describe(value) for name, value in arguments.items()}
        kind = json.dumps([operator, [without_fill(value) for value in described.values()]])
        if kind not in self._seen:
            self._seen.add(kind)
            with self._path.open("a") as out:
                out.write(json.dumps({"operator": operator, "arguments": described}) + "\n")
