"""The arithmetic of kernels/mla_decode.py and amla.py behind the scores, on many cases at a time.

Every operation is the kernel's, in its order and type. The three that a machine may do in another
order or way are arguments: with `libm_exp`, `ordered_dot` and `ordered_sum` the result is the
native kernel's bit for bit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

NOTHING_SEEN = -1.0e30
START = 2.0**-80
LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4


@dataclass(frozen=True)
class Machine:
    """How exponentials and sums are computed."""

    exp: Callable[[torch.Tensor], torch.Tensor] = torch.exp
    dot: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch.matmul
    total: Callable[[torch.Tensor], torch.Tensor] = lambda weights: weights.sum(-1)


def flash(
    scores: torch.Tensor, values: torch.Tensor, amla: bool, machine: Machine | None = None
) -> torch.Tensor:
    """scores [..., pages, rows, keys], values [..., pages, keys, dim], float32 -> [..., rows, dim].

    The result is float32, before it is rounded to bfloat16.
    """
    machine = machine or Machine()
    shape = (*scores.shape[:-3], scores.shape[-2])
    top = torch.full(shape, NOTHING_SEEN)
    total = torch.zeros(shape)
    result = torch.zeros(*shape, values.shape[-1])
    exponent, factor16, excess = torch.zeros(shape), torch.ones(shape), torch.ones(shape)
    for page in range(scores.shape[-3]):
        page_scores, page_values = scores[..., page, :, :], values[..., page, :, :]
        new_top = torch.maximum(top, page_scores.amax(-1))
        weights = machine.exp(page_scores - new_top[..., None])
        shrink = machine.exp(top - new_top)
        total = total * shrink + machine.total(weights)
        if amla:
            new_exponent, factor16, new_excess = power_of_two(new_top, excess, machine)
            halvings = (new_exponent - exponent).clamp(-30.0, 0.0)
            correction = (excess / new_excess - 1.0) * 1.5
            addend = torch.floor((halvings + correction + 1e-6) * 2.0**23 + 0.5).int()
            result = add_exponent(result, addend)
            weights = weights * factor16[..., None]
            exponent, excess = new_exponent, new_excess
        else:
            result = result * shrink[..., None]
        result = result + machine.dot(weights.bfloat16().float(), page_values)
        top = new_top
    return result / (total * factor16)[..., None]


def power_of_two(top: torch.Tensor, excess: torch.Tensor, machine: Machine):
    seen = top > NOTHING_SEEN
    exponent = torch.where(seen, -torch.floor(top * LOG2_E + 0.5), 0.0)
    rest = torch.where(seen, (top + exponent * LN2_HIGH) + exponent * LN2_LOW, 0.0)
    factor = machine.exp(rest)
    factor16 = (factor / excess).bfloat16().float()
    return exponent, factor16, factor / factor16


def add_exponent(result: torch.Tensor, addend: torch.Tensor) -> torch.Tensor:
    result = torch.where(result.abs() < START, START, result)
    return (result.view(torch.int32) + addend[..., None]).view(torch.float32)


def exact(scores: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The same attention in float64."""
    keys = scores.double().transpose(-3, -2).flatten(-2)
    return keys.softmax(-1) @ values.double().flatten(-3, -2)


_LIBM = ctypes.CDLL("libm.so.6")
_LIBM.expf.argtypes, _LIBM.expf.restype = [ctypes.c_float], ctypes.c_float
_EXPF = np.frompyfunc(_LIBM.expf, 1, 1)


def libm_exp(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.asarray(_EXPF(x.numpy())).astype(np.float32))


def ordered_dot(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """left [..., rows, keys] @ right [..., keys, dim], one key after the other."""
    result = torch.zeros(*left.shape[:-1], right.shape[-1])
    for key in range(left.shape[-1]):
        result = result + left[..., key, None] * right[..., key, None, :]
    return result


def ordered_sum(weights: torch.Tensor) -> torch.Tensor:
    result = torch.zeros(weights.shape[:-1])
    for key in range(weights.shape[-1]):
        result = result + weights[..., key]
    return result


ORDERED = Machine(libm_exp, ordered_dot, ordered_sum)
