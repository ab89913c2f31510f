"""Writes into the paged caches: exact, in place, and only where a slot says so."""

import pytest
import torch
from transformers.models.deepseek_v3.modeling_deepseek_v3 import (
    DeepseekV3RMSNorm,
    apply_rotary_pos_emb_interleave,
)

from sglang_ascend.ops.kv_rmsnorm_rope_write import kv_rmsnorm_rope_write
from sglang_ascend.ops.kv_write import kv_write
from sglang_ascend.ops.mla_kv_write import mla_kv_write
from sglang_ascend.ops.rope_tables import plain_cos_sin
from sglang_ascend.ops.spec import OperatorError

PAGES = [1, 3, 16, 128]
SLOT_DTYPES = [torch.int32, torch.int64]


def _cache(page, heads, dim, strided, dtype=torch.float32):
    if strided:
        return torch.full((5, 2, page, heads, dim + 1), float("nan"), dtype=dtype)[:, 0, ..., 1:]
    return torch.full((5, page, heads, dim), float("nan"), dtype=dtype)


def _expected(cache, slots, rows):
    expected = cache.clone()
    page = cache.shape[1]
    for slot, row in zip(slots.tolist(), rows):
        if slot >= 0:
            expected[slot // page, slot % page] = row
    return expected


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("slot_dtype", SLOT_DTYPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_kv_write(page, strided, slot_dtype, dtype):
    torch.manual_seed(0)
    key_cache = _cache(page, 3, 8, strided, dtype)
    value_cache = _cache(page, 3, 6, strided, dtype)
    slots = torch.tensor([5 * page - 1, -1, 0, -1, 2 * page], dtype=slot_dtype)
    key = torch.randn(3, 5, 8, dtype=dtype).transpose(0, 1)
    value = torch.randn(5, 3, 6, dtype=dtype)
    expected = _expected(key_cache, slots, key), _expected(value_cache, slots, value)
    assert kv_write(key, value, key_cache, value_cache, slots) is None
    assert torch.equal(key_cache.nan_to_num(7), expected[0].nan_to_num(7))
    assert torch.equal(value_cache.nan_to_num(7), expected[1].nan_to_num(7))


@pytest.mark.parametrize("slots", [[], [-1, -1]])
def test_nothing_to_write(slots):
    caches = _cache(4, 1, 8, False), _cache(4, 1, 8, False)
    rows = torch.randn(len(slots), 1, 8)
    kv_write(rows, rows, *caches, torch.tensor(slots, dtype=torch.int64))
    assert all(cache.isnan().all() for cache in caches)


def test_padding_tokens_may_share_a_slot():
    cache = _cache(4, 1, 8, False), _cache(4, 1, 8, False)
    rows = torch.randn(3, 1, 8)
    kv_write(rows, rows, *cache, torch.tensor([0, 0, 6]))
    assert torch.equal(cache[0][1, 2], rows[2])
    assert any(torch.equal(cache[0][0, 0], row) for row in rows[:2])


def test_slot_behind_the_cache():
    caches = _cache(4, 1, 8, False), _cache(4, 1, 8, False)
    rows = torch.randn(1, 1, 8)
    with pytest.raises(OperatorError, match=r"kv_write: slots must be below 20 .* got 20"):
        kv_write(rows, rows, *caches, torch.tensor([20]))


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("strided", [False, True])
def test_mla_kv_write(page, strided):
    torch.manual_seed(0)
    latent_cache, rope_cache = _cache(page, 1, 16, strided), _cache(page, 1, 4, strided)
    slots = torch.tensor([page, -1, 4 * page])
    fused = torch.randn(3, 20)
    latent, rope = fused[:, :16], fused[:, 16:]
    expected = (
        _expected(latent_cache, slots, latent[:, None]),
        _expected(rope_cache, slots, rope[:, None]),
    )
    assert mla_kv_write(latent, rope, latent_cache, rope_cache, slots) is None
    assert torch.equal(latent_cache.nan_to_num(7), expected[0].nan_to_num(7))
    assert torch.equal(rope_cache.nan_to_num(7), expected[1].nan_to_num(7))


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("tokens", [0, 4])
def test_kv_rmsnorm_rope_write_is_transformers(page, tokens):
    torch.manual_seed(0)
    kv_lora, rotary, eps = 32, 8, 1e-5
    norm = DeepseekV3RMSNorm(kv_lora, eps=eps)
    norm.weight.data.copy_(torch.randn(kv_lora))
    kv = torch.randn(tokens, kv_lora + rotary) * 3
    tables = plain_cos_sin(rotary, 64)
    positions = torch.tensor([9, 0, 63, 9])[:tokens]
    slots = torch.tensor([page, 0, -1, 4 * page])[:tokens]
    latent_cache, rope_cache = _cache(page, 1, kv_lora, False), _cache(page, 1, rotary, False)

    cos, sin = (torch.cat((t, t), -1) for t in tables[positions].chunk(2, -1))
    key = kv[:, None, kv_lora:]
    _, rotated = apply_rotary_pos_emb_interleave(key, key, cos, sin)
    expected = (
        _expected(latent_cache, slots, norm(kv[:, :kv_lora]).detach()[:, None]),
        _expected(rope_cache, slots, rotated),
    )
    kv_rmsnorm_rope_write(
        kv, norm.weight.data, tables, positions, latent_cache, rope_cache, slots, eps
    )
    assert torch.equal(latent_cache.nan_to_num(7), expected[0].nan_to_num(7))
    assert torch.equal(rope_cache.nan_to_num(7), expected[1].nan_to_num(7))
