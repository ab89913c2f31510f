"""Grouped-query attention over the paged cache against a loop in float64."""

import pytest
import torch

from sglang_ascend.ops import padded_attention
from sglang_ascend.ops.paged_gqa_attention import paged_gqa_attention
from sglang_ascend.ops.spec import OperatorError
from tests.ops.caches import PagedRequests, naive_attention

PAGES = [1, 3, 16, 32, 64, 128]
# Float32 sums of up to some hundred terms against float64; 16-bit results are rounded once more.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}

MIXES = {
    "decode": ([1, 1, 1], [1, 17, 130]),
    "decode, one request": ([1], [33]),
    "verify": ([3, 1, 2], [3, 40, 129]),
    "prefill": ([5, 33, 1], [5, 33, 1]),
    "prefill with prefix": ([7, 20], [150, 21]),
    "mixed, with requests that have no query": ([0, 1, 9, 0, 1], [4, 5, 30, 0, 64]),
    "very unequal": ([1, 90, 2], [200, 90, 2]),
    "only requests without query": ([0, 0], [3, 0]),
    "no request": ([], []),
}


def _run(page, query_lens, kv_lens, heads=6, kv_heads=2, dim=8, value_dim=8, **options):
    dtype, causal = options.pop("dtype", torch.float32), options.pop("causal", True)
    padding = options.pop("padding", 0)
    requests = PagedRequests.make(page, kv_lens)
    keys = requests.cache(kv_heads, dim, dtype, **options)
    values = requests.cache(kv_heads, value_dim, dtype, **options)
    tokens = sum(query_lens)
    query = torch.randn(heads, tokens + padding, dim, dtype=dtype).transpose(0, 1)
    out = paged_gqa_attention(
        query, keys.cache, values.cache, requests.block_table, query_lens, kv_lens, 0.3, causal
    )
    expected = torch.zeros(tokens + padding, heads, value_dim, dtype=torch.float64)
    start = 0
    for request, length in enumerate(query_lens):
        rows = slice(start, start + length)
        expected[rows] = naive_attention(
            query[rows], keys.rows[request], values.rows[request], 0.3, causal
        )
        start += length
    torch.testing.assert_close(out.double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    return out


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("mix", MIXES)
def test_mix(page, mix):
    torch.manual_seed(0)
    _run(page, *MIXES[mix])


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bit(mix, dtype):
    torch.manual_seed(0)
    _run(16, *MIXES[mix], dtype=dtype)


@pytest.mark.parametrize("mix", ["decode", "prefill with prefix", "very unequal"])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "value_dim"),
    [(9, 3, 64, 64), (1, 1, 1, 1), (4, 4, 5, 5), (8, 1, 16, 4), (6, 2, 4, 12)],
)
@pytest.mark.parametrize("strided", [False, True])
def test_heads_and_strides(mix, heads, kv_heads, dim, value_dim, strided):
    torch.manual_seed(0)
    _run(16, *MIXES[mix], heads, kv_heads, dim, value_dim, strided=strided)


@pytest.mark.parametrize("mix", MIXES)
def test_not_causal(mix):
    torch.manual_seed(0)
    _run(16, *MIXES[mix], causal=False)


@pytest.mark.parametrize("mix", ["decode", "verify", "only requests without query", "no request"])
def test_padding_rows_are_zero(mix):
    torch.manual_seed(0)
    out = _run(16, *MIXES[mix], padding=3)
    assert not out[sum(MIXES[mix][0]) :].any()


def test_long_prefill_in_chunks(monkeypatch):
    """Chunks of 4 queries, the last one short, with a prefix and beside a shorter request."""
    monkeypatch.setattr(padded_attention, "_MAX_CHUNK", 4)
    torch.manual_seed(0)
    _run(16, [13, 11], [40, 11])


def test_an_answer_does_not_depend_on_the_batch():
    """Within rounding: other shapes may sum in another order."""
    torch.manual_seed(0)
    query_lens, kv_lens = MIXES["very unequal"]
    requests = PagedRequests.make(16, kv_lens)
    keys, values = requests.cache(2, 8), requests.cache(2, 8)
    query = torch.randn(sum(query_lens), 6, 8)
    table = requests.block_table
    together = paged_gqa_attention(query, keys.cache, values.cache, table, query_lens, kv_lens, 0.3)
    start = 0
    for request, length in enumerate(query_lens):
        rows = slice(start, start + length)
        alone = paged_gqa_attention(
            query[rows],
            keys.cache,
            values.cache,
            table[request : request + 1],
            [length],
            [kv_lens[request]],
            0.3,
        )
        torch.testing.assert_close(together[rows], alone, rtol=2e-6, atol=2e-6)
        start += length


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query_lens": [1]}, "query_lens must have 2 entries as block_table has rows, got 1"),
        ({"kv_lens": [4]}, "kv_lens must have 2 entries as block_table has rows, got 1"),
        ({"query_lens": [2, 2]}, "query_lens must add up to at most 3 query tokens, got 4"),
        (
            {"query_lens": [2, 1], "kv_lens": [1, 4]},
            r"request 0 needs 0 <= query_len <= kv_len <= 8 .* got query_len 2, kv_len 1",
        ),
        ({"kv_lens": [4, 9]}, r"request 1 .* got query_len 1, kv_len 9"),
        ({"query": torch.zeros(3, 3, 8)}, "heads must be a multiple of kv_heads 2, got 3"),
        (
            {"value_cache": torch.zeros(4, 4, 1, 8)},
            r"value_cache axis 2 \(kv_heads\) must be 2 as in key_cache, got 1",
        ),
        ({"block_table": torch.zeros(2, 2)}, "block_table must be int32, int64, got float32"),
    ],
)
def test_wrong_arguments(changes, message):
    arguments = {
        "query": torch.zeros(3, 4, 8),
        "key_cache": torch.zeros(4, 4, 2, 8),
        "value_cache": torch.zeros(4, 4, 2, 8),
        "block_table": torch.zeros(2, 2, dtype=torch.int32),
        "query_lens": [2, 1],
        "kv_lens": [4, 4],
        "scale": 1.0,
    }
    paged_gqa_attention(**arguments)
    with pytest.raises(OperatorError, match=f"paged_gqa_attention: {message}"):
        paged_gqa_attention(**{**arguments, **changes})
