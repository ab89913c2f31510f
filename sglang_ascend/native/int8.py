"""INT8 weights in the order in which the kernel reads them, and the exact product with them."""

from __future__ import annotations

from itertools import accumulate

import torch

from sglang_ascend.native import arena
from sglang_ascend.native.library import call, int64s, kernels

#: The attribute of a weight tensor that holds its packed form.
_PACKED = "native_packed"
#: More products a sum than this could leave 32 bits.
_LONGEST_SUM = 2**17 - 1


_packs = 0


def packs() -> int:
    """Weights packed so far in this process; a recording from before the last one is stale."""
    return _packs


def pack(weight: torch.Tensor) -> torch.Tensor:
    """Give ``weight`` [in, out] or [experts, in, out] int8 a packed form and release its elements.

    The tensor keeps shape and dtype, so that it still says what it is, but only ``matmul`` and
    ``grouped_matmul`` read its values. Without native kernels it is left as it is.
    """
    lib = kernels()
    if lib is None or weight.device.type != "cpu" or weight.shape[-2] > _LONGEST_SUM:
        return weight
    global _packs
    _packs += 1
    source = weight.data.contiguous()
    experts = source.shape[0] if source.dim() == 3 else 1
    rows_in, outs = source.shape[-2:]
    packed = arena.empty(lib.int8_packed_bytes(experts, rows_in, outs))
    call(lib.pack_int8, source.data_ptr(), packed.data_ptr(), experts, rows_in, outs)
    setattr(weight, _PACKED, packed)
    weight.data = torch.zeros(1, dtype=torch.int8).expand(source.shape)
    return weight


def release(weight: torch.Tensor) -> None:
    """Give up the packed form of ``weight``, if it has one."""
    if hasattr(weight, _PACKED):
        delattr(weight, _PACKED)


def matmul(x, x_scale, weight, weight_scale, dtype):
    """As the operator ``quant_matmul``; ``NotImplemented`` for a weight that was not packed."""
    packed = getattr(weight, _PACKED, None)
    if packed is None:
        return NotImplemented
    return _product(x, x_scale, packed, weight_scale, [x.shape[0]], weight.shape, dtype)


def grouped_matmul(x, x_scale, weights, weight_scale, tokens_per_expert, dtype):
    """As the operator ``quant_grouped_matmul``; ``NotImplemented`` for weights not packed."""
    packed = getattr(weights, _PACKED, None)
    if packed is None:
        return NotImplemented
    ends = list(accumulate(tokens_per_expert.tolist()))
    return _product(x, x_scale, packed, weight_scale, ends, weights.shape[1:], dtype)


def _product(x, x_scale, packed, weight_scale, ends, shape, dtype):
    rows_in, outs = shape
    x, x_scale = x.contiguous(), x_scale.contiguous()
    weight_scale = weight_scale.contiguous()
    y = torch.empty(x.shape[0], outs)
    lib = kernels()
    wide = torch.empty(lib.int8_wide_bytes(x.shape[0], rows_in), dtype=torch.int8)
    call(
        lib.int8_matmul,
        *(x.data_ptr(), x_scale.data_ptr(), packed.data_ptr(), weight_scale.data_ptr()),
        *(int64s(ends), y.data_ptr(), wide.data_ptr(), len(ends), rows_in, outs),
    )
    return y.to(dtype)
