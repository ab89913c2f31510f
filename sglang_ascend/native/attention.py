"""Causal attention over a paged cache, grouped queries and MLA, in float32."""

from __future__ import annotations

import ctypes
from functools import cache
from itertools import accumulate

import torch

from sglang_ascend.native.library import call, int64s, kernels
from sglang_ascend.native.rows import dense_rows

_P, _I, _F = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float


class _Arguments(ctypes.Structure):
    """``struct attention`` of attention.c, field by field."""

    _fields_ = [
        *((name, _P) for name in ("query", "query2", "keys", "keys2", "values", "out")),
        *((name, _P) for name in ("block_table", "query_starts", "query_lens", "kv_lens")),
        ("first_items", _P),
        *((name, _I) for name in ("requests", "heads", "kv_heads", "dim", "dim2", "value_dim")),
        *((name, _I) for name in ("page", "table_stride", "query_stride", "query2_stride")),
        *((name, _I * 3) for name in ("key_strides", "key2_strides", "value_strides")),
        ("scale", _F),
        *((name, _I) for name in ("causal", "heads_an_item")),
    ]


def paged_attention(
    queries: tuple[torch.Tensor, ...],
    caches: tuple[torch.Tensor, ...],
    values: torch.Tensor,
    block_table: torch.Tensor,
    query_lens,
    kv_lens,
    scale: float,
    causal: bool,
):
    """softmax(scale * sum of the parts of query keys^T) values of ragged requests.

    queries: one tensor [tokens, heads, dim], or two whose products with their keys are added (MLA).
    caches: the keys of each, [blocks, page, kv_heads, dim]; values [blocks, page, kv_heads,
    value_dim]. block_table [requests, blocks of the longest].

    Returns:
        [tokens, heads, value_dim]; rows behind sum(query_lens) are zero. ``NotImplemented`` for
        tensors that the kernel does not take.
    """
    lib = kernels()
    if lib is None or not all(map(_takes, (*queries, *caches, values))):
        return NotImplemented
    query, keys = queries[0], caches[0]
    tokens, heads, dim = query.shape
    table = block_table.to(torch.int32).contiguous()
    out = query.new_empty(tokens, heads, values.shape[3])
    lens = request_lens(query_lens, kv_lens)
    requests, used = len(query_lens), lens[len(query_lens)]
    at = ctypes.addressof(lens)
    arguments = _Arguments(
        query=query.data_ptr(),
        keys=keys.data_ptr(),
        values=values.data_ptr(),
        out=out.data_ptr(),
        block_table=table.data_ptr(),
        query_starts=at,
        query_lens=at + 8 * (requests + 1),
        kv_lens=at + 8 * (2 * requests + 1),
        requests=requests,
        heads=heads,
        kv_heads=keys.shape[2],
        dim=dim,
        value_dim=values.shape[3],
        page=keys.shape[1],
        table_stride=table.shape[1],
        query_stride=query.stride(0),
        key_strides=keys.stride()[:3],
        value_strides=values.stride()[:3],
        scale=scale,
        causal=causal,
    )
    if len(queries) == 2:
        arguments.query2 = queries[1].data_ptr()
        arguments.keys2 = caches[1].data_ptr()
        arguments.dim2 = queries[1].shape[2]
        arguments.query2_stride = queries[1].stride(0)
        arguments.key2_strides = caches[1].stride()[:3]
    call(lib.paged_attention, ctypes.byref(arguments))
    if used < tokens:
        out[used:] = 0
    return out


#: The lengths of the step at hand: (query_lens, kv_lens, the array). All layers ask for the same.
_step: tuple = (None, None, None)


def request_lens(query_lens, kv_lens) -> ctypes.Array:
    """Start of each request's queries and their end, query lengths and key lengths, int64.

    Of requests r, r + 1 + r + r integers. The last result is kept while the same two lists are
    asked for, whose contents must not change.
    """
    global _step
    if _step[0] is not query_lens or _step[1] is not kv_lens:
        starts = accumulate(query_lens, initial=0)
        _step = query_lens, kv_lens, int64s([*starts, *query_lens, *kv_lens])
    return _step[2]


@cache
def _lanes() -> int:
    return kernels().lanes()


def _takes(x: torch.Tensor) -> bool:
    if x.shape[-1] % _lanes() or x.dtype != torch.float32 or x.stride(-1) != 1:
        return False
    return x.dim() == 4 or dense_rows(x)
