"""Prolog, paged attention and output projection together against transformers' attention layer."""

import pytest
import torch
from transformers import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import (
    DeepseekV3Attention,
    DeepseekV3RotaryEmbedding,
)

from sglang_ascend.ops.mla_prefill_expanded import mla_prefill_expanded
from sglang_ascend.ops.mla_prolog import mla_prolog
from sglang_ascend.ops.paged_mla_attention import paged_mla_attention
from sglang_ascend.ops.rope_tables import yarn_cos_sin, yarn_softmax_scale
from sglang_ascend.ops.spec import OperatorError
from tests.ops.caches import PagedRequests

HIDDEN, HEADS, Q_LORA, KV_LORA, ROTARY, NOPE, VALUE = 32, 4, 24, 16, 8, 6, 10
EPS = 1e-6
YARN = {"factor": 4.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}


def _config() -> DeepseekV3Config:
    return DeepseekV3Config(
        hidden_size=HIDDEN,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        q_lora_rank=Q_LORA,
        kv_lora_rank=KV_LORA,
        qk_rope_head_dim=ROTARY,
        qk_nope_head_dim=NOPE,
        v_head_dim=VALUE,
        max_position_embeddings=512,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "original_max_position_embeddings": 128,
            **YARN,
        },
        rope_interleave=True,
        attn_implementation="eager",
    )


class _Layer:
    def __init__(self):
        torch.manual_seed(0)
        config = _config()
        self.module = DeepseekV3Attention(config, layer_idx=0).eval()
        self.rotary = DeepseekV3RotaryEmbedding(config)
        for parameter in self.module.parameters():
            parameter.data.copy_(torch.randn_like(parameter) / parameter.shape[-1] ** 0.5)
        up = self.module.kv_b_proj.weight.data.view(HEADS, NOPE + VALUE, KV_LORA)
        self.w_uk = up[:, :NOPE].contiguous()
        self.w_uv = up[:, NOPE:].transpose(1, 2).contiguous()
        self.tables = yarn_cos_sin(ROTARY, 512, original_max_positions=128, **YARN)
        self.scale = yarn_softmax_scale(NOPE + ROTARY, YARN["factor"], YARN["mscale_all_dim"])

    def by_transformers(self, x: torch.Tensor) -> torch.Tensor:
        """x [tokens, hidden]: one request without a cache."""
        tokens = x.shape[0]
        positions = torch.arange(tokens)[None]
        mask = torch.full((tokens, tokens), float("-inf")).triu(1)[None, None]
        return self.module(x[None], self.rotary(x, positions), mask)[0][0]

    def prolog(self, x, positions, latent_cache, rope_cache, slots):
        module = self.module
        return mla_prolog(
            x,
            module.q_a_proj.weight.data.t(),
            module.q_b_proj.weight.data.t(),
            self.w_uk,
            module.kv_a_proj_with_mqa.weight.data.t(),
            module.q_a_layernorm.weight.data,
            module.kv_a_layernorm.weight.data,
            self.tables,
            positions,
            latent_cache,
            rope_cache,
            slots,
            EPS,
        )


@pytest.mark.parametrize("page", [1, 16, 128])
@pytest.mark.parametrize(
    "chunks", [[[13, 5]], [[9, 2], [4, 3]], [[12, 4], [1, 1]], [[6, 0], [7, 5]]]
)
@torch.no_grad()
def test_layer_is_transformers(page, chunks):
    """Two requests, whole or in chunks over the paged cache, absorbed and expanded."""
    layer = _Layer()
    totals = [sum(column) for column in zip(*chunks)]
    prompts = [torch.randn(total, HIDDEN) for total in totals]
    expected = [layer.by_transformers(prompt) for prompt in prompts]
    requests = PagedRequests.make(page, totals)
    latent_cache = torch.full((requests.blocks, page, 1, KV_LORA), float("nan"))
    rope_cache = torch.full((requests.blocks, page, 1, ROTARY), float("nan"))
    done = [0, 0]
    for query_lens in chunks:
        kv_lens = [before + length for before, length in zip(done, query_lens)]
        spans = [slice(before, end) for before, end in zip(done, kv_lens)]
        x = torch.cat([prompt[span] for prompt, span in zip(prompts, spans)])
        positions = torch.cat([torch.arange(span.start, span.stop) for span in spans])
        slots = torch.cat([requests.slots(request)[span] for request, span in enumerate(spans)])
        query_latent, query_rope = layer.prolog(x, positions, latent_cache, rope_cache, slots)
        cached = (latent_cache, rope_cache, requests.block_table, query_lens, kv_lens)
        absorbed = paged_mla_attention(query_latent, query_rope, *cached, layer.scale)
        absorbed = torch.einsum("thl,hlv->thv", absorbed, layer.w_uv)
        query = layer.module.q_b_proj(layer.module.q_a_layernorm(layer.module.q_a_proj(x)))
        query_nope = query.view(-1, HEADS, NOPE + ROTARY)[..., :NOPE]
        expanded = mla_prefill_expanded(
            query_nope, query_rope, *cached, layer.w_uk, layer.w_uv, layer.scale
        )
        wanted = torch.cat([rows[span] for rows, span in zip(expected, spans)])
        for heads in (absorbed, expanded):
            actual = layer.module.o_proj(heads.flatten(1))
            # Six float32 products in a row, associated in another order.
            torch.testing.assert_close(actual, wanted, rtol=1e-5, atol=1e-5)
        done = kv_lens


@torch.no_grad()
def test_no_tokens():
    layer = _Layer()
    caches = torch.full((3, 4, 1, KV_LORA), 1.0), torch.full((3, 4, 1, ROTARY), 1.0)
    none = torch.zeros(0, dtype=torch.int64)
    query_latent, query_rope = layer.prolog(torch.zeros(0, HIDDEN), none, *caches, none)
    assert query_latent.shape == (0, HEADS, KV_LORA) and query_rope.shape == (0, HEADS, ROTARY)
    assert all((cache == 1).all() for cache in caches)


def test_negative_slots_are_refused():
    layer = _Layer()
    caches = torch.zeros(3, 4, 1, KV_LORA), torch.zeros(3, 4, 1, ROTARY)
    index = torch.tensor([0])
    with pytest.raises(OperatorError, match="mla_prolog: slots must not be negative; .* got -1"):
        layer.prolog(torch.zeros(1, HIDDEN), index, *caches, torch.tensor([-1]))
