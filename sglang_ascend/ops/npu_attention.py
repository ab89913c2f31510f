"""What the attention calls on the NPU share: masks, and the layouts of ragged queries."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import torch

# The fused attention takes one mask of this size for every causal shape.
_CAUSAL_MASK_SIZE = 2048


@lru_cache(maxsize=4)
def causal_mask(device: torch.device) -> torch.Tensor:
    """The compressed causal mask of npu_fused_infer_attention_score: bool, True is hidden."""
    size = _CAUSAL_MASK_SIZE
    return torch.ones(size, size, dtype=torch.bool, device=device).triu_(1)


@dataclass(frozen=True)
class NpuRequests:
    """The requests of a call that have queries: query [sum(query_lens), heads, dim]."""

    query: torch.Tensor
    block_table: torch.Tensor
    query_lens: tuple[int, ...]
    kv_lens: tuple[int, ...]

    def query_ends(self) -> list[int]:
        """Cumulative query lengths, as the TND layout wants them."""
        return list(accumulate(self.query_lens))

    def kv_ends(self) -> list[int]:
        """Cumulative numbers of keys."""
        return list(accumulate(self.kv_lens))

    def key_slots(self, page: int) -> torch.Tensor:
        """Cache slots of all keys of all requests, one request after the other [sum(kv_lens)]."""
        device = self.block_table.device
        lens = torch.tensor(self.kv_lens, device=device)
        request = torch.repeat_interleave(lens, output_size=sum(self.kv_lens))
        starts = lens.cumsum(0) - lens
        position = torch.arange(sum(self.kv_lens), device=device) - starts.index_select(0, request)
        return self.block_table[request, position // page].long() * page + position % page

    def padded_right(self, query: torch.Tensor | None = None) -> torch.Tensor:
        """Queries as [requests, longest, heads, dim], padding behind the real ones."""
        return self._padded(self.query if query is None else query, self._right_rows())

    def unpadded_right(self, padded: torch.Tensor) -> torch.Tensor:
        """The inverse of `padded_right` for a result [requests, longest, heads, dim]."""
        return self._unpadded(padded, self._right_rows())

    def padded_left(self, query: torch.Tensor | None = None) -> torch.Tensor:
        """Queries as [requests, longest, heads, dim], padding before the real ones.

        The bottom-right causal mask then holds for the real queries without per-request lengths.
        """
        return self._padded(self.query if query is None else query, self._left_rows())

    def unpadded_left(self, padded: torch.Tensor) -> torch.Tensor:
        """The inverse of `padded_left` for a result [requests, longest, heads, dim]."""
        return self._unpadded(padded, self._left_rows())

    def _uniform(self) -> bool:
        return len(set(self.query_lens)) <= 1

    def _right_rows(self) -> list[int]:
        longest = max(self.query_lens, default=0)
        return [b * longest + i for b, length in enumerate(self.query_lens) for i in range(length)]

    def _left_rows(self) -> list[int]:
        longest = max(self.query_lens, default=0)
        return [
            (b + 1) * longest - length + i
            for b, length in enumerate(self.query_lens)
            for i in range(length)
        ]

    def _padded(self, query: torch.Tensor, rows: list[int]) -> torch.Tensor:
        requests, longest = len(self.query_lens), max(self.query_lens, default=0)
        if self._uniform():
            return query.view(requests, longest, *query.shape[1:])
        padded = query.new_zeros(requests * longest, *query.shape[1:])
        padded.index_copy_(0, torch.tensor(rows, dtype=torch.int64, device=query.device), query)
        return padded.view(requests, longest, *query.shape[1:])

    def _unpadded(self, padded: torch.Tensor, rows: list[int]) -> torch.Tensor:
        flat = padded.reshape(-1, *padded.shape[2:])
        if self._uniform():
            return flat
        return flat.index_select(0, torch.tensor(rows, dtype=torch.int64, device=padded.device))


def drop_empty_requests(
    query: torch.Tensor,
    block_table: torch.Tensor,
    query_lens: Sequence[int],
    kv_lens: Sequence[int],
) -> NpuRequests:
    """Leave out the requests without queries, and the padding rows behind the last query."""
    kept = [request for request, length in enumerate(query_lens) if length > 0]
    if len(kept) < len(query_lens):
        block_table = block_table.index_select(
            0, torch.tensor(kept, dtype=torch.int64, device=block_table.device)
        )
    return NpuRequests(
        query=query[: sum(query_lens)].contiguous(),
        block_table=block_table.int(),
        query_lens=tuple(query_lens[request] for request in kept),
        kv_lens=tuple(kv_lens[request] for request in kept),
    )


def restore_rows(out: torch.Tensor, tokens: int) -> torch.Tensor:
    """Append zeros for the padding rows behind the last query."""
    missing = tokens - out.shape[0]
    return torch.cat((out, out.new_zeros(missing, *out.shape[1:]))) if missing else out
