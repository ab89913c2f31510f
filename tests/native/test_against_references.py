"""Every native kernel against the reference of its operator."""

import pytest
import torch

from sglang_ascend.native import library, rows
from sglang_ascend.ops.add_rms_norm import add_rms_norm
from sglang_ascend.ops.dynamic_quant import dynamic_quant
from sglang_ascend.ops.grouped_matmul import grouped_matmul
from sglang_ascend.ops.kv_write import kv_write
from sglang_ascend.ops.paged_gqa_attention import paged_gqa_attention
from sglang_ascend.ops.paged_mla_attention import paged_mla_attention
from sglang_ascend.ops.rms_norm import rms_norm
from sglang_ascend.ops.rope import rope
from sglang_ascend.ops.spec import OperatorError
from sglang_ascend.ops.swiglu import swiglu


@pytest.fixture(autouse=True)
def _seeded():
    assert library.kernels() is not None, "the machine that runs the tests has a C compiler"
    torch.manual_seed(0)


def assert_same(operator, *args, **kwargs):
    """The kernel takes the arguments, and its result is the reference's within the tolerance."""
    result = operator.host(*args, **kwargs)
    assert result is not NotImplemented
    expected = operator.reference(*args, **kwargs)
    limit = operator.spec.tolerance.float32
    torch.testing.assert_close(result, expected, rtol=limit, atol=limit)
    return result


@pytest.mark.parametrize("tokens", [0, 1, 7, 40])
@pytest.mark.parametrize("hidden", [1, 8, 33, 576])
def test_norms(tokens, hidden):
    wide = torch.randn(tokens, hidden + 5)
    x, weight = wide[:, 2 : hidden + 2], torch.randn(hidden)
    assert_same(rms_norm, x, weight, 1e-5)
    assert_same(add_rms_norm, x, torch.randn(tokens, hidden), weight, 1e-5)


@pytest.mark.parametrize("tokens, inter", [(0, 8), (1, 1536), (9, 13), (40, 64)])
def test_swiglu(tokens, inter):
    assert_same(swiglu, torch.randn(tokens, 2 * inter) * 6)


def test_swiglu_of_extreme_gates():
    gates = [0.0, -0.0, 1e-38, 86.9, 87.1, -86.9, -87.1, -88.1, -1e4, 1e4, float("inf"), -3e38]
    x = torch.tensor([gates + [2.0] * 12])
    assert_same(swiglu, x)


@pytest.mark.parametrize("tokens, hidden", [(0, 8), (1, 576), (9, 13), (40, 64)])
def test_dynamic_quant_in_every_bit(tokens, hidden):
    x = torch.randn(tokens, hidden + 3)[:, 1 : hidden + 1] * 100
    if tokens > 3:
        x[1] = 0
        x[2, 0] = -1e30
        x[3] = torch.arange(hidden) - hidden / 2 + 0.5
    q, scale = dynamic_quant.host(x)
    expected_q, expected_scale = dynamic_quant.reference(x)
    assert torch.equal(q, expected_q) and torch.equal(scale, expected_scale)


@pytest.mark.parametrize("flags", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("rotary", [2, 64])
def test_rope(flags, rotary):
    fused = torch.randn(11, 12 * rotary)
    query = fused[:, : 9 * rotary].view(11, 9, rotary)
    key = fused[:, 9 * rotary :].view(11, 3, rotary)
    positions = torch.randint(0, 50, (11,), dtype=torch.int32)
    assert_same(rope, query, key, torch.randn(50, rotary), positions, *flags)


def test_a_position_outside_the_table_is_the_references_error():
    x = torch.randn(1, 1, 8)
    with pytest.raises(IndexError):
        rope(x, x, torch.randn(5, 8), torch.tensor([5]), False)


def test_cache_write_skips_negative_slots_and_refuses_slots_behind_the_cache():
    caches = [torch.zeros(3, 4, 2, 8) for _ in range(4)]
    key, value = torch.randn(3, 2, 24)[..., :8], torch.randn(3, 2, 8)
    slots = torch.tensor([11, -1, 0])
    kv_write(key, value, caches[0], caches[1], slots)
    for token, slot in ((0, 11), (2, 0)):
        assert torch.equal(caches[0].view(12, 2, 8)[slot], key[token])
        assert torch.equal(caches[1].view(12, 2, 8)[slot], value[token])
    assert int((caches[1].view(12, -1).abs().sum(1) > 0).sum()) == 2
    with pytest.raises((IndexError, OperatorError)):
        kv_write(key, value, caches[2], caches[3], torch.tensor([12, 0, 1]))
    assert not caches[2].any()


LENS = [
    ([1] * 5, [1, 2, 33, 700, 8]),
    ([128], [128]),
    ([5, 0, 1, 70], [100, 9, 1, 200]),
    ([0], [0]),
]


def paged(query_lens, kv_lens, page, *row):
    """A cache whose free slots hold NaN, and a block table in random order."""
    blocks = [-(-length // page) for length in kv_lens]
    order = torch.randperm(sum(blocks) + 2)
    cache = torch.full((len(order), page, *row), float("nan"))
    table = torch.zeros(len(kv_lens), max(*blocks, 1), dtype=torch.int32)
    start = 0
    for request, (count, length) in enumerate(zip(blocks, kv_lens)):
        mine = order[start : start + count]
        table[request, :count] = mine
        for block, left in zip(mine, range(length, 0, -page)):
            cache[block, : min(left, page)] = torch.randn(min(left, page), *row)
        start += count
    return cache, table


@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("lens", LENS)
@pytest.mark.parametrize("heads, kv_heads, dim, value_dim", [(9, 3, 64, 64), (8, 8, 48, 16)])
def test_gqa_attention(page, lens, heads, kv_heads, dim, value_dim):
    cache, table = paged(*lens, page, kv_heads, dim + value_dim)
    query = torch.randn(sum(lens[0]) + 2, heads, dim)
    keys, values = cache[..., :dim], cache[..., dim:]
    for causal in (True, False):
        out = assert_same(
            paged_gqa_attention, query, keys, values, table, *lens, dim**-0.5, causal=causal
        )
        assert not out[sum(lens[0]) :].any()


@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("lens", LENS)
def test_mla_attention(page, lens):
    cache, table = paged(*lens, page, 1, 96)
    latents, rotary = cache[..., :64], cache[..., 64:]
    query = torch.randn(sum(lens[0]) + 1, 6, 96)
    assert_same(
        paged_mla_attention, query[..., :64].contiguous(), query[..., 64:].contiguous(),
        latents, rotary, table, *lens, 0.1,
    )  # fmt: skip


def test_attention_weights_of_very_different_scores():
    query, keys = torch.zeros(1, 1, 16), torch.zeros(20, 1, 1, 16)
    query[0, 0, 0], keys[:, 0, 0, 0] = 1.0, torch.linspace(-300, 300, 20)
    values, table = torch.randn(20, 1, 1, 16), torch.arange(20, dtype=torch.int32)[None]
    out = assert_same(paged_gqa_attention, query, keys, values, table, [1], [20], 1.0)
    torch.testing.assert_close(out[0, 0], values[19, 0, 0])


@pytest.mark.parametrize("counts", [[5, 0, 1, 10], [0, 0, 0, 0], [1, 1, 1, 1]])
@pytest.mark.parametrize("width, outs", [(64, 48), (13, 7), (1, 1)])
def test_grouped_matmul(counts, width, outs):
    weights = torch.randn(4, outs, width).transpose(1, 2)
    rows = torch.randn(sum(counts) + 3, width + 2)[:, :width]
    counts = torch.tensor(counts)
    result = grouped_matmul.host(rows, weights, counts)
    used = int(counts.sum())
    expected = grouped_matmul.reference(rows, weights, counts)
    torch.testing.assert_close(result[:used], expected[:used], rtol=2e-5, atol=2e-5)


def test_kernels_leave_other_dtypes_and_layouts_to_the_reference():
    x = torch.randn(4, 8)
    assert rms_norm.host(x.bfloat16(), torch.ones(8).bfloat16(), 1e-5) is NotImplemented
    assert rms_norm.host(torch.randn(8, 4).t(), torch.ones(8), 1e-5) is NotImplemented
    assert swiglu.host(torch.randn(8, 4).t()) is NotImplemented
    assert grouped_matmul.host(x, torch.randn(1, 8, 3), torch.tensor([4])) is NotImplemented
    cache, table = paged([1], [3], 1, 1, 12)
    query = torch.randn(1, 2, 12)
    assert paged_gqa_attention.host(query, cache, cache, table, [1], [3], 1.0) is NotImplemented


def test_argmax_is_torchs():
    x = torch.randn(5, 1003)
    x[1] = 0.5  # all equal: the first
    x[2, 700] = x[2, 17] = 9.0
    x[3, 1002] = 9.0
    x[4] = -float("inf")
    assert torch.equal(rows.argmax(x), x.argmax(-1))
    x[0, 400] = x[0, 900] = float("nan")
    assert torch.equal(rows.argmax(x), x.argmax(-1))
    assert torch.equal(rows.argmax(x[:, :3]), x[:, :3].argmax(-1))
    assert rows.argmax(x.double()) is NotImplemented
