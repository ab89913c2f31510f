"""Grouping of requests of unequal lengths into padded batches, on the host."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import torch

from sglang_ascend.ops.spec import OperatorError

# Padded scores per useful score up to which requests share a batch.
_MAX_WASTE = 1.5
# Padded (query, key) pairs that are cheaper to compute than a further batch.
_FREE_SCORES = 4096
# Keys of one batch are gathered into memory together; a longer request still is one batch.
_MAX_KEYS = 2**17


@dataclass(frozen=True)
class Bucket:
    """Requests that are computed as one padded batch of `query_len` queries and `kv_len` keys."""

    requests: tuple[int, ...]
    query_len: int
    kv_len: int


def plan_buckets(query_lens: Sequence[int], kv_lens: Sequence[int]) -> list[Bucket]:
    """Partition the requests that have queries into padded batches with bounded waste and size.

    Requests are sorted by length, so that neighbours are alike, and joined to the current batch
    while its padded size stays within `_MAX_WASTE` of the useful size and `_MAX_KEYS` keys.
    """
    order = sorted(
        (request for request, length in enumerate(query_lens) if length > 0),
        key=lambda request: (query_lens[request], kv_lens[request]),
    )
    buckets = []
    members, useful, widest, longest = [], 0, 0, 0
    for request in order:
        scores = query_lens[request] * kv_lens[request]
        new_widest = max(widest, query_lens[request])
        new_longest = max(longest, kv_lens[request])
        keys = (len(members) + 1) * new_longest
        wasteful = keys * new_widest > max(_MAX_WASTE * (useful + scores), _FREE_SCORES)
        if members and (wasteful or keys > _MAX_KEYS):
            buckets.append(Bucket(tuple(members), widest, longest))
            members, useful = [], 0
            new_widest, new_longest = query_lens[request], kv_lens[request]
        members.append(request)
        useful += scores
        widest, longest = new_widest, new_longest
    if members:
        buckets.append(Bucket(tuple(members), widest, longest))
    return buckets


@dataclass(frozen=True)
class PaddedBatch:
    """Index tensors of one bucket of b requests, padded to q queries and s keys.

    requests: rows of the block table [b]; None means all of them, in order.
    query_rows: token rows [b, q]; padding repeats the request's last query.
    kv_positions: positions [b, s]; padding repeats the request's last position, so that only slots
        that were written are ever read.
    visible: number of leading keys that each query sees [b, q], at least 1.
    kept: flat indices into [b * q] of the queries that are real; None if all are.
    out_rows: the token row of each kept query.
    """

    bucket: Bucket
    requests: torch.Tensor | None
    query_rows: torch.Tensor
    kv_positions: torch.Tensor
    visible: torch.Tensor
    kept: torch.Tensor | None
    out_rows: torch.Tensor


def padded_batches(
    query_lens: Sequence[int], kv_lens: Sequence[int], causal: bool
) -> tuple[PaddedBatch, ...]:
    """Index tensors of all buckets, on the CPU. All layers of a step ask for the same ones."""
    return _padded_batches(tuple(query_lens), tuple(kv_lens), causal)


@lru_cache(maxsize=8)
def _padded_batches(query_lens, kv_lens, causal) -> tuple[PaddedBatch, ...]:
    starts = [0, *accumulate(query_lens)]
    with torch.inference_mode(False):
        return tuple(
            _padded_batch(bucket, starts, query_lens, kv_lens, causal)
            for bucket in plan_buckets(query_lens, kv_lens)
        )


def _padded_batch(bucket, starts, query_lens, kv_lens, causal) -> PaddedBatch:
    start = torch.tensor([starts[request] for request in bucket.requests])[:, None]
    query_len = torch.tensor([query_lens[request] for request in bucket.requests])[:, None]
    kv_len = torch.tensor([kv_lens[request] for request in bucket.requests])[:, None]
    query_index = torch.arange(bucket.query_len)[None, :]
    query_rows = start + query_index.minimum(query_len - 1)
    kv_positions = torch.arange(bucket.kv_len)[None, :].minimum(kv_len - 1)
    visible = kv_len.expand(-1, bucket.query_len)
    if causal:
        visible = (kv_len - query_len + query_index + 1).minimum(kv_len)
    real = (query_index < query_len).flatten()
    kept = None if bool(real.all()) else real.nonzero().squeeze(1)
    flat = query_rows.flatten()
    everyone = bucket.requests == tuple(range(len(query_lens)))
    return PaddedBatch(
        bucket=bucket,
        requests=None if everyone else torch.tensor(bucket.requests),
        query_rows=query_rows,
        kv_positions=kv_positions,
        visible=visible.contiguous(),
        kept=kept,
        out_rows=flat if kept is None else flat.index_select(0, kept),
    )


def scatter_result(out: torch.Tensor, batch: PaddedBatch, result: torch.Tensor) -> None:
    """Write the real queries of result [b, q, heads, dim] to out [tokens, heads, dim]."""
    flat = result.reshape(-1, *result.shape[2:])
    if batch.kept is not None:
        flat = flat.index_select(0, batch.kept)
    out.index_copy_(0, batch.out_rows, flat.to(out.dtype))


def check_lens(operator: str, arguments) -> None:
    """Raise `OperatorError` unless the host lengths fit the query tokens and the block table."""
    block_table = arguments["block_table"]
    query = next(value for name, value in arguments.items() if name.startswith("query"))
    cache = next(value for name, value in arguments.items() if name.endswith("_cache"))
    query_lens, kv_lens = arguments["query_lens"], arguments["kv_lens"]
    requests, max_blocks = block_table.shape
    for name, lens in (("query_lens", query_lens), ("kv_lens", kv_lens)):
        if len(lens) != requests:
            raise OperatorError(
                f"{operator}: {name} must have {requests} entries as block_table has rows, got"
                f" {len(lens)}"
            )
    if sum(query_lens) > query.shape[0]:
        raise OperatorError(
            f"{operator}: query_lens must add up to at most {query.shape[0]} query tokens, got"
            f" {sum(query_lens)}"
        )
    capacity = max_blocks * cache.shape[1]
    for request, (queries, keys) in enumerate(zip(query_lens, kv_lens)):
        if not 0 <= queries <= keys <= capacity:
            raise OperatorError(
                f"{operator}: request {request} needs 0 <= query_len <= kv_len <= {capacity}"
                f" (blocks * page), got query_len {queries}, kv_len {keys}"
            )
