"""Latent attention, absorbed and expanded, against a loop in float64."""

import pytest
import torch

from sglang_ascend.ops import padded_attention
from sglang_ascend.ops import paged_mla_attention as absorbed_module
from sglang_ascend.ops.mla_prefill_expanded import mla_prefill_expanded
from sglang_ascend.ops.paged_mla_attention import paged_mla_attention
from tests.ops.caches import PagedRequests, naive_attention
from tests.ops.test_paged_gqa_attention import MIXES, PAGES, TOLERANCE

HEADS, KV_LORA, ROTARY, NOPE, VALUE, SCALE = 4, 16, 4, 6, 3, 0.2


class _Layer:
    """Queries, weights and a paged latent cache, and the answer by definition."""

    def __init__(self, page, query_lens, kv_lens, dtype=torch.float32, strided=False, padding=0):
        torch.manual_seed(0)
        self.query_lens, self.kv_lens = query_lens, kv_lens
        self.requests = PagedRequests.make(page, kv_lens)
        self.latents = self.requests.cache(1, KV_LORA, dtype, strided)
        self.ropes = self.requests.cache(1, ROTARY, dtype, strided)
        tokens = sum(query_lens) + padding
        self.query_nope = torch.randn(tokens, HEADS, NOPE, dtype=dtype)
        self.query_rope = torch.randn(tokens, HEADS, NOPE + ROTARY, dtype=dtype)[..., NOPE:]
        self.w_uk = torch.randn(HEADS, NOPE, KV_LORA, dtype=dtype) / 4
        self.w_uv = torch.randn(HEADS, KV_LORA, VALUE, dtype=dtype) / 4
        self.query_latent = torch.einsum(
            "thn,hnl->thl", self.query_nope.double(), self.w_uk.double()
        )

    def absorbed(self):
        return paged_mla_attention(
            self.query_latent.to(self.query_nope.dtype),
            self.query_rope,
            self.latents.cache,
            self.ropes.cache,
            self.requests.block_table,
            self.query_lens,
            self.kv_lens,
            SCALE,
        )

    def expanded(self):
        return mla_prefill_expanded(
            self.query_nope,
            self.query_rope,
            self.latents.cache,
            self.ropes.cache,
            self.requests.block_table,
            self.query_lens,
            self.kv_lens,
            self.w_uk,
            self.w_uv,
            SCALE,
        )

    def expected(self, value_of, query):
        """value_of: latents and ropes [s, 1, dim] -> keys and values, from the cache."""
        parts, start = [], 0
        for request, length in enumerate(self.query_lens):
            latent, rope = self.latents.rows[request].double(), self.ropes.rows[request].double()
            keys, values = value_of(latent, rope)
            parts.append(naive_attention(query[start : start + length], keys, values, SCALE))
            start += length
        padding = query.shape[0] - start
        width = parts[0].shape[2] if parts else 0
        return torch.cat((*parts, torch.zeros(padding, HEADS, width, dtype=torch.float64)))

    def expected_absorbed(self):
        rounded = self.query_latent.to(self.query_nope.dtype).double()
        query = torch.cat((rounded, self.query_rope.double()), dim=-1)
        return self.expected(lambda latent, rope: (torch.cat((latent, rope), -1), latent), query)

    def expected_expanded(self):
        query = torch.cat((self.query_nope, self.query_rope), dim=-1).double()

        def expand(latent, rope):
            keys = torch.einsum("sl,hnl->shn", latent[:, 0], self.w_uk.double())
            values = torch.einsum("sl,hlv->shv", latent[:, 0], self.w_uv.double())
            return torch.cat((keys, rope.expand(-1, HEADS, -1)), dim=-1), values

        return self.expected(expand, query)


def _assert_close(actual, expected, dtype):
    if expected.numel() == 0:
        assert actual.numel() == 0
        return
    tolerance = 2 * TOLERANCE[dtype]
    torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("mix", MIXES)
def test_mix(page, mix):
    layer = _Layer(page, *MIXES[mix])
    _assert_close(layer.absorbed(), layer.expected_absorbed(), torch.float32)
    _assert_close(layer.expanded(), layer.expected_expanded(), torch.float32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mix", ["decode", "verify", "prefill with prefix"])
def test_sixteen_bit(mix, dtype):
    layer = _Layer(16, *MIXES[mix], dtype=dtype)
    _assert_close(layer.absorbed(), layer.expected_absorbed(), dtype)
    _assert_close(layer.expanded(), layer.expected_expanded(), dtype)


@pytest.mark.parametrize("mix", ["decode", "very unequal"])
def test_strided_caches_and_padding_rows(mix):
    layer = _Layer(16, *MIXES[mix], strided=True, padding=2)
    _assert_close(layer.absorbed(), layer.expected_absorbed(), torch.float32)
    _assert_close(layer.expanded(), layer.expected_expanded(), torch.float32)


@pytest.mark.parametrize("mix", MIXES)
def test_absorbed_and_expanded_are_one_attention(mix):
    layer = _Layer(16, *MIXES[mix])
    through_latents = torch.einsum("thl,hlv->thv", layer.absorbed(), layer.w_uv)
    # Two more products in float32 than either path alone.
    torch.testing.assert_close(through_latents, layer.expanded(), rtol=1e-5, atol=1e-5)


def test_long_prefill_in_chunks(monkeypatch):
    monkeypatch.setattr(padded_attention, "_MAX_CHUNK", 4)
    monkeypatch.setattr(absorbed_module, "_MAX_CHUNK", 4)
    layer = _Layer(16, [13, 11], [40, 11])
    _assert_close(layer.absorbed(), layer.expected_absorbed(), torch.float32)
    _assert_close(layer.expanded(), layer.expected_expanded(), torch.float32)


def test_values_wider_than_keys():
    """No padding of the values is needed, none may be cut off."""
    layer = _Layer(16, [3, 1], [9, 4])
    layer.w_uv = torch.randn(HEADS, KV_LORA, NOPE + ROTARY + 5) / 4
    _assert_close(layer.expanded(), layer.expected_expanded(), torch.float32)
