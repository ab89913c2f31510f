"""Requests with hostile paged caches for the attention kernels."""

from __future__ import annotations

import torch

from tests.ops.caches import PagedRequests


def dense_views(requests: PagedRequests, heads: int, dim: int) -> torch.Tensor:
    """A cache of which only the last axis is dense; every slot that nobody owns holds NaN."""
    filled = requests.cache(heads, dim, torch.bfloat16).cache
    shape = (requests.blocks, 2, requests.page, heads + 1, dim)
    wide = torch.full(shape, float("nan"), dtype=torch.bfloat16)
    view = wide[:, 1, :, 1:]
    view.copy_(filled)
    return view


def mla_case(
    heads: int, query_lens: list[int], kv_lens: list[int], seed: int = 0, padding: int = 2
):
    """Arguments of MLA attention by name; `padding` query rows belong to no request."""
    torch.manual_seed(seed)
    requests = PagedRequests.make(128, kv_lens, seed)
    tokens = sum(query_lens) + padding
    # Transposed: neither query is contiguous.
    query = torch.randn(heads, tokens, 576, dtype=torch.bfloat16).transpose(0, 1)
    return {
        "query_latent": query[..., :512],
        "query_rope": query[..., 512:],
        "latent_cache": dense_views(requests, 1, 512),
        "rope_cache": dense_views(requests, 1, 64),
        "block_table": requests.block_table,
        "query_lens": query_lens,
        "kv_lens": kv_lens,
        "scale": 192**-0.5,
    }


def gqa_case(
    heads: int, kv_heads: int, dim: int, query_lens: list[int], kv_lens: list[int], seed: int = 0
):
    """Arguments of GQA attention by name; two query rows belong to no request."""
    torch.manual_seed(seed)
    requests = PagedRequests.make(128, kv_lens, seed)
    tokens = sum(query_lens) + 2
    query = torch.randn(heads, tokens, dim, dtype=torch.bfloat16).transpose(0, 1)
    return {
        "query": query,
        "key_cache": dense_views(requests, kv_heads, dim),
        "value_cache": dense_views(requests, kv_heads, dim),
        "block_table": requests.block_table,
        "query_lens": query_lens,
        "kv_lens": kv_lens,
        "scale": dim**-0.5,
    }


def in_float32(case: dict) -> dict:
    """The same arguments for the reference, which then rounds nothing on the way."""
    return {
        name: value.float()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value
        for name, value in case.items()
    }
