"""Norm, activation, quantisation, argmax, rotary positions, cache writes of float32 rows.

Each function does what the operator of its name documents, and returns ``NotImplemented`` for
tensors that the kernel does not take (another dtype, rows that are not dense), before any effect.
"""

from __future__ import annotations

import torch

from sglang_ascend.native.library import call, kernels

_FLOAT = torch.float32


def dense_rows(x: torch.Tensor) -> bool:
    """Whether ``x`` is float32 and every row (all axes but the first) is contiguous."""
    if x.dtype != _FLOAT:
        return False
    step = 1
    for size, stride in zip(reversed(x.shape[1:]), reversed(x.stride()[1:])):
        if stride != step and size != 1:
            return False
        step *= size
    return True


def rms_norm(x, weight, eps, residual=None):
    """y, or (y, x + residual), of x [tokens, hidden]."""
    lib = kernels()
    if lib is None or not dense_rows(x) or weight.dtype != _FLOAT:
        return NotImplemented
    tokens, hidden = x.shape
    y = x.new_empty(tokens, hidden)
    total, residual_at, total_at = None, None, None
    if residual is not None:
        if residual.dtype != _FLOAT or not residual.is_contiguous():
            return NotImplemented
        total = torch.empty_like(y)
        residual_at, total_at = residual.data_ptr(), total.data_ptr()
    call(
        lib.rms_norm,
        *(x.data_ptr(), residual_at, weight.data_ptr(), y.data_ptr(), total_at),
        *(tokens, hidden, x.stride(0), eps),
    )
    return y if residual is None else (y, total)


def swiglu(x):
    """silu(first half) * second half of x [tokens, 2 * inter]."""
    lib = kernels()
    if lib is None or x.dtype != _FLOAT or not x.is_contiguous():
        return NotImplemented
    tokens, width = x.shape
    y = x.new_empty(tokens, width // 2)
    call(lib.swiglu, x.data_ptr(), y.data_ptr(), tokens, width // 2)
    return y


def dynamic_quant(x):
    """(q, scale) of x [tokens, hidden]."""
    lib = kernels()
    if lib is None or not dense_rows(x):
        return NotImplemented
    tokens, hidden = x.shape
    q, scale = x.new_empty(tokens, hidden, dtype=torch.int8), x.new_empty(tokens)
    call(
        lib.dynamic_quant, x.data_ptr(), q.data_ptr(), scale.data_ptr(), tokens, hidden, x.stride(0)
    )
    return q, scale


def argmax(x):
    """Index [tokens] int64 of the largest of each row of x [tokens, width], as torch.argmax."""
    lib = kernels()
    if lib is None or not dense_rows(x) or not x.shape[1]:
        return NotImplemented
    index = x.new_empty(x.shape[0], dtype=torch.int64)
    call(lib.argmax, x.data_ptr(), index.data_ptr(), *x.shape, x.stride(0))
    return index


def rope(query, key, cos_sin, positions, interleaved, split_halves):
    """(rotated query, rotated key) of [tokens, heads, rotary] each."""
    lib = kernels()
    takes = lib is not None and cos_sin.is_contiguous() and cos_sin.dtype == _FLOAT
    if not takes or not dense_rows(query) or not dense_rows(key):
        return NotImplemented
    positions = positions.long().contiguous()
    tokens, query_heads, rotary = query.shape
    key_heads = key.shape[1]
    rotated = query.new_empty(query.shape), key.new_empty(key.shape)
    outside = call(
        lib.rope,
        *(query.data_ptr(), key.data_ptr(), cos_sin.data_ptr(), positions.data_ptr()),
        *(rotated[0].data_ptr(), rotated[1].data_ptr(), tokens, query_heads, key_heads, rotary),
        *(query.stride(0), key.stride(0), interleaved, split_halves, cos_sin.shape[0]),
    )
    return NotImplemented if outside else rotated


def write_rows(cache, slots, rows):
    """cache[slot] = row in place for cache [blocks, page, ...], slots [tokens], rows [tokens, ...].

    Rows of a block follow one another at one stride, and so do blocks.
    """
    lib = kernels()
    blocks, page = cache.shape[:2]
    even = cache.stride(0) == cache.stride(1) * page or blocks == 1
    if lib is None or not even or not dense_rows(rows) or not dense_rows(cache[0]):
        return NotImplemented
    slots = slots.long().contiguous()
    outside = call(
        lib.write_rows,
        *(rows.data_ptr(), cache.data_ptr(), slots.data_ptr(), rows.shape[0]),
        *(rows[0].numel() if rows.shape[0] else 0, rows.stride(0), cache.stride(1), blocks * page),
    )
    return NotImplemented if outside else None
