"""Paged caches for tests: every slot that no request owns holds NaN."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass
class PagedCache:
    """One cache [blocks, page, heads, dim], and per request its rows [kv_len, heads, dim]."""

    cache: torch.Tensor
    rows: list[torch.Tensor]


@dataclass
class PagedRequests:
    """Blocks of requests in scattered order. Table entries behind a request's blocks are junk."""

    page: int
    kv_lens: list[int]
    blocks: int
    block_table: torch.Tensor

    @classmethod
    def make(cls, page: int, kv_lens: list[int], seed: int = 0) -> PagedRequests:
        generator = torch.Generator().manual_seed(seed)
        needed = [-(-length // page) for length in kv_lens]
        # Block 0 is the padding block of the server; some blocks belong to nobody.
        blocks = sum(needed) + 4
        order = (torch.randperm(blocks - 1, generator=generator) + 1).tolist()
        table = torch.zeros(len(kv_lens), max(needed, default=0) + 2, dtype=torch.int32)
        table[:] = order[-1]
        for request, count in enumerate(needed):
            own, order = order[:count], order[count:]
            table[request, :count] = torch.tensor(own, dtype=torch.int32)
        return cls(page, kv_lens, blocks, table)

    def slots(self, request: int) -> torch.Tensor:
        positions = torch.arange(self.kv_lens[request])
        return (
            self.block_table[request, positions // self.page].long() * self.page
            + positions % self.page
        )

    def cache(self, heads: int, dim: int, dtype=torch.float32, strided: bool = False) -> PagedCache:
        """A filled cache. strided: a view whose blocks and heads are not adjacent in memory."""
        shape = (self.blocks, self.page, heads, dim)
        if strided:
            cache = torch.full(
                (self.blocks, 2, self.page, heads, 2 * dim), float("nan"), dtype=dtype
            )
            cache = cache[:, 1, :, :, ::2]
        else:
            cache = torch.full(shape, float("nan"), dtype=dtype)
        rows = []
        for request, length in enumerate(self.kv_lens):
            values = torch.randn(length, heads, dim, dtype=dtype)
            slots = self.slots(request)
            cache[slots // self.page, slots % self.page] = values
            rows.append(values)
        return PagedCache(cache, rows)


def naive_attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float, causal: bool = True
) -> torch.Tensor:
    """One request in float64, one query and head at a time.

    query [q, heads, dim], keys [s, kv_heads, dim], values [s, kv_heads, value_dim].
    """
    queries, heads, _ = query.shape
    length, kv_heads = keys.shape[:2]
    out = torch.empty(queries, heads, values.shape[2], dtype=torch.float64)
    for i in range(queries):
        seen = length - queries + i + 1 if causal else length
        for head in range(heads):
            group = head // (heads // kv_heads)
            scores = keys[:seen, group].double() @ query[i, head].double() * scale
            out[i, head] = scores.softmax(0) @ values[:seen, group].double()
    return out
