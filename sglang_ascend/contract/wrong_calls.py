"""Calls that a unit could make by mistake, derived from the specification of an operator.

Each has to be refused: by the specification (SGLANG_ASCEND_CHECK_OPS=1), by the operator's own
checks before the NPU call, or by torch_npu. What none of them refuses would be garbage on a chip.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from sglang_ascend.ops.spec import OperatorSpec, TensorSpec

#: The first of these that an argument does not accept is what it gets by mistake.
_WRONG_DTYPES = (torch.int8, torch.float64, torch.int16)


@dataclass(frozen=True)
class WrongCall:
    """A mistake in a few words, and the arguments with it."""

    mistake: str
    arguments: dict[str, Any]


def wrong_calls(
    spec: OperatorSpec, arguments: Mapping[str, Any], required: tuple[str, ...]
) -> Iterator[WrongCall]:
    """Mistakes in a right call.

    required: the operator's parameters without a default.
    """
    yield WrongCall("unknown argument", {**arguments, "not_an_argument": 1})
    for name in required:
        without = {key: value for key, value in arguments.items() if key != name}
        yield WrongCall(f"{name} left out", without)
    given = {name: t for name, t in spec.inputs.items() if arguments.get(name) is not None}
    shared = Counter(axis for tensor in given.values() for axis in set(tensor.axes))
    for name, tensor_spec in given.items():
        for mistake, wrong in _wrong_tensors(tensor_spec, arguments[name], arguments, shared):
            yield WrongCall(f"{name}: {mistake}", {**arguments, name: wrong})
    for name in spec.mutates:
        wrong = _strided(arguments[name])
        yield WrongCall(f"{name}: strides with gaps", {**arguments, name: wrong})
    yield from _wrong_host_arguments(arguments)


def _wrong_tensors(
    spec: TensorSpec, value: torch.Tensor, arguments, shared: Counter
) -> Iterator[tuple[str, Any]]:
    if not spec.optional:
        yield "None", None
    yield "a list of tensors", [value]
    yield "one axis more", value.unsqueeze(0)
    accepted = spec.dtypes or (arguments[spec.like].dtype,)
    wrong = next(dtype for dtype in _WRONG_DTYPES if dtype not in accepted)
    yield f"dtype {str(wrong).removeprefix('torch.')}", value.to(wrong)
    if spec.like:
        other = torch.float16 if value.dtype != torch.float16 else torch.bfloat16
        yield f"another float dtype than {spec.like}", value.to(other)
    for position, axis in enumerate(spec.axes):
        if isinstance(axis, int) or shared[axis] > 1:
            shape = [size + (at == position) for at, size in enumerate(value.shape)]
            yield f"axis {axis} one longer than elsewhere", value.new_zeros(shape)


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape of which every second row of memory is somebody else's."""
    first, *rest = tensor.shape
    return tensor.new_zeros(first, 2, *rest)[:, 0]


def _wrong_host_arguments(arguments: Mapping[str, Any]) -> Iterator[WrongCall]:
    for name in ("query_lens", "kv_lens"):
        if name in arguments:
            lens = list(arguments[name])
            yield WrongCall(f"{name}: one entry more", {**arguments, name: [*lens, 1]})
            yield WrongCall(f"{name}: negative", {**arguments, name: [-1, *lens[1:]]})
            yield WrongCall(f"{name}: behind the cache", {**arguments, name: [10**6, *lens[1:]]})
    if "ep" in arguments:
        yield from _wrong_groups(arguments)


def _wrong_groups(arguments: Mapping[str, Any]) -> Iterator[WrongCall]:
    ep, counts = arguments["ep"], arguments["token_counts"]

    def of(mistake: str, **changes) -> WrongCall:
        return WrongCall(mistake, {**arguments, "ep": replace(ep, **changes)})

    yield of("rank as large as the world", group=replace(ep.group, rank=ep.group.size))
    yield of("negative rank", group=replace(ep.group, rank=-1))
    yield of("experts that do not divide over the ranks", slots=ep.slots + 1)
    yield of("unknown product", product="A9")
    yield of("unknown algorithm", algorithm="ring")
    yield WrongCall("token_counts: one entry more", {**arguments, "token_counts": (*counts, 1)})
    other = (counts[0] + 1,) * len(counts)
    yield WrongCall("token_counts: not this rank's tokens", {**arguments, "token_counts": other})
