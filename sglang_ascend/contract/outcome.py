"""What a call returns, without its values, so that two devices can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from sglang_ascend.ops.spec import Opaque, OperatorSpec


def tensors_of(results: Any) -> tuple[torch.Tensor, ...]:
    """The results of an operator as a tuple, however many there are."""
    if results is None:
        return ()
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def comparable(spec: OperatorSpec, results: Any) -> tuple[torch.Tensor | None, ...]:
    """The results without those that differ by device and that only a further operator reads.

    All of them if there are more or fewer than the specification says.
    """
    found, kinds = tensors_of(results), tuple(spec.outputs.values())
    if len(found) != len(kinds):
        return found
    return tuple(x for kind, x in zip(kinds, found) if not isinstance(kind, Opaque))


def names(spec: OperatorSpec) -> list[str]:
    """Names of the results that `comparable` keeps."""
    return [name for name, kind in spec.outputs.items() if not isinstance(kind, Opaque)]


def describe(
    results: tuple[torch.Tensor | None, ...], arguments: Mapping[str, Any]
) -> list[dict[str, Any] | None]:
    """Shape, dtype and strides of every result, and the argument whose memory it shares."""
    owners = {_memory(value): name for name, value in arguments.items() if _is_tensor(value)}
    return [
        None
        if tensor is None
        else {
            "shape": [int(size) for size in tensor.shape],
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "stride": _strides(tensor),
            "shares": owners.get(_memory(tensor)),
        }
        for tensor in results
    ]


def differences(expected: list, got: list, names: Sequence[str]) -> list[str]:
    """What differs between two descriptions, a line each. names: of the results."""
    if len(expected) != len(got):
        return [f"{len(expected)} results expected, got {len(got)}"]
    found = []
    for name, wanted, actual in zip(names, expected, got):
        if wanted is None or actual is None:
            if wanted is not actual:
                found.append(f"{name}: {'None' if wanted is None else 'a tensor'} expected")
            continue
        found += [
            f"{name}: {field} must be {wanted[field]}, got {actual[field]}"
            for field in wanted
            if wanted[field] != actual[field]
        ]
    return found


def _strides(tensor: torch.Tensor) -> list[int]:
    # The stride of an axis with one entry, and all strides of an empty tensor, mean nothing.
    sizes = tensor.shape if tensor.numel() else [1] * tensor.dim()
    return [int(step) if size > 1 else 0 for size, step in zip(sizes, tensor.stride())]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
