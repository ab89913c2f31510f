"""Grouping of requests: every query once, no padding that matters, bounded waste."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_ascend.ops.npu_attention import drop_empty_requests, restore_rows
from sglang_ascend.ops.ragged import (
    _FREE_SCORES,
    _MAX_KEYS,
    _MAX_WASTE,
    padded_batches,
    plan_buckets,
)

LENS = st.lists(
    st.tuples(st.one_of(st.just(1), st.integers(0, 700)), st.integers(0, 3000)), max_size=24
).map(lambda pairs: ([q for q, _ in pairs], [q + prefix for q, prefix in pairs]))


@settings(max_examples=200, deadline=None)
@given(LENS)
def test_buckets_partition_the_requests_with_queries(lens):
    query_lens, kv_lens = lens
    buckets = plan_buckets(query_lens, kv_lens)
    members = sorted(request for bucket in buckets for request in bucket.requests)
    assert members == [request for request, length in enumerate(query_lens) if length]
    for bucket in buckets:
        assert bucket.query_len == max(query_lens[r] for r in bucket.requests)
        assert bucket.kv_len == max(kv_lens[r] for r in bucket.requests)


@settings(max_examples=200, deadline=None)
@given(LENS)
def test_waste_is_bounded(lens):
    query_lens, kv_lens = lens
    for bucket in plan_buckets(query_lens, kv_lens):
        padded = len(bucket.requests) * bucket.query_len * bucket.kv_len
        useful = sum(query_lens[r] * kv_lens[r] for r in bucket.requests)
        assert padded <= max(_MAX_WASTE * useful, _FREE_SCORES)


@settings(max_examples=50, deadline=None)
@given(LENS, st.booleans())
def test_padded_batches_index_every_query_once_and_only_written_keys(lens, causal):
    query_lens, kv_lens = lens
    rows = []
    for batch in padded_batches(query_lens, kv_lens, causal):
        rows += batch.out_rows.tolist()
        assert (
            batch.query_rows.flatten()[slice(None) if batch.kept is None else batch.kept].tolist()
            == batch.out_rows.tolist()
        )
        for row, request in enumerate(batch.bucket.requests):
            length, start = kv_lens[request], sum(query_lens[:request])
            assert batch.kv_positions[row].max() == length - 1
            assert batch.kv_positions[row, :length].tolist() == list(range(length))
            assert 1 <= batch.visible[row].min() and batch.visible[row].max() == length
            for i in (0, query_lens[request] - 1):
                assert batch.query_rows[row, i] == start + i
                seen = length - query_lens[request] + i + 1 if causal else length
                assert batch.visible[row, i] == seen
    assert sorted(rows) == list(range(sum(query_lens)))


def test_decode_of_equal_requests_is_one_batch():
    assert len(plan_buckets([1] * 64, list(range(1000, 1064)))) == 1


def test_memory_is_bounded_unless_one_request_alone_is_longer():
    buckets = plan_buckets([1] * 40 + [2], [20000] * 40 + [2 * _MAX_KEYS])
    for bucket in buckets:
        assert len(bucket.requests) == 1 or len(bucket.requests) * bucket.kv_len <= _MAX_KEYS
    assert len(buckets) == 40 // (_MAX_KEYS // 20000) + 2


def test_a_long_prompt_does_not_pad_decodes():
    buckets = plan_buckets([1, 512, 1, 1], [300, 512, 310, 290])
    assert sorted(sorted(bucket.requests) for bucket in buckets) == [[0, 2, 3], [1]]


@pytest.mark.parametrize("query_lens", [[], [0], [3, 0, 1, 2], [2, 2], [1, 1, 1]])
@pytest.mark.parametrize("side", ["left", "right"])
def test_npu_layouts_are_inverse(query_lens, side):
    tokens = sum(query_lens)
    query = torch.arange(1, (tokens + 2) * 4 + 1).view(tokens + 2, 2, 2).float()
    table = torch.arange(len(query_lens), dtype=torch.int32)[:, None]
    requests = drop_empty_requests(query, table, query_lens, [length + 5 for length in query_lens])
    kept = [length for length in query_lens if length]
    assert list(requests.query_lens) == kept
    assert requests.block_table[:, 0].tolist() == [b for b, n in enumerate(query_lens) if n]
    padded = getattr(requests, f"padded_{side}")()
    assert padded.shape == (len(kept), max(kept, default=0), 2, 2)
    for b, length in enumerate(kept):
        start = sum(kept[:b])
        real = padded[b, :length] if side == "right" else padded[b, padded.shape[1] - length :]
        assert torch.equal(real, query[start : start + length])
    back = restore_rows(getattr(requests, f"unpadded_{side}")(padded), tokens + 2)
    assert torch.equal(back[:tokens], query[:tokens]) and not back[tokens:].any()
