"""Multi-head latent attention over the split MLA cache pool.

Two ways through a layer, chosen for each step by ``mla_method``:

- absorbed: SGLang folds W_UK into the query and calls with latent queries; the cache is read as
  it is. Decode, verification and short prefills over a long prefix.
- expanded: SGLang asks ``prepare_prefill_qkv`` for the layer's inputs; keys and values of prefix
  and new tokens are expanded from the cached latents. Long prefills.
"""

from __future__ import annotations

import torch

from sglang_ascend.attention.metadata import StepMetadata
from sglang_ascend.attention.paging import as_blocks
from sglang_ascend.ops.mla_kv_write import mla_kv_write
from sglang_ascend.ops.mla_prefill_expanded import mla_prefill_expanded
from sglang_ascend.ops.paged_mla_attention import paged_mla_attention


class MlaAttention:
    """Writes new latents and attends, absorbed or expanded."""

    def __init__(self, pool, page_size: int) -> None:
        self._pool = pool
        self._page_size = page_size
        self._expanded_layers: dict[int, object] = {}

    def prepare_prefill_qkv(self, q, q_pe, kv_a, k_pe, positions, layer, forward_batch):
        """SGLang's hook for expanded prefill: rotate, write the latents, hand over the query.

        Args:
            q: [tokens, heads, nope + rope]; q_pe: its last rope columns.
            kv_a: [tokens, latent] after its norm; k_pe: [tokens, 1, rope].
            layer: SGLang's ``DeepseekV2AttentionMLA``, which owns W_UK and W_UV.

        Returns:
            The query with rotated rope columns, and no keys or values: they come from the cache.
        """
        if layer.rotary_emb is not None:
            q_pe, k_pe = layer.rotary_emb(positions, q_pe, k_pe)
        q[..., layer.qk_nope_head_dim :] = q_pe
        attention = layer.attn_mha
        latents, ropes = self._caches(attention.layer_id)
        mla_kv_write(kv_a, k_pe.squeeze(1), latents, ropes, forward_batch.out_cache_loc)
        self._expanded_layers[attention.layer_id] = layer
        return q, None, None

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        layer,
        step: StepMetadata,
        slots: torch.Tensor | None,
        q_rope: torch.Tensor | None = None,
        k_rope: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Attention of one layer.

        Args:
            q: absorbed: latent queries [tokens, heads, latent]; expanded: [tokens, heads,
                nope + rope].
            k: absorbed: latents of the new tokens [tokens, 1, latent]; expanded: None.
            q_rope, k_rope: absorbed: [tokens, heads, rope] and [tokens, 1, rope], rotated.
            slots: cache slots of the new tokens, None where nothing is written.

        Returns:
            absorbed: [tokens, heads * latent]; expanded: [tokens, heads * value head_dim]
        """
        latents, ropes = self._caches(layer.layer_id)
        if q_rope is None:
            return self._expanded(q, layer, step, latents, ropes)
        if slots is not None:
            mla_kv_write(k.flatten(1), k_rope.flatten(1), latents, ropes, slots)
        out = paged_mla_attention(
            q.view(-1, layer.tp_q_head_num, latents.shape[-1]),
            q_rope.view(-1, layer.tp_q_head_num, ropes.shape[-1]),
            latents,
            ropes,
            step.block_table,
            step.query_lens,
            step.kv_lens,
            layer.scaling,
        )
        return out.flatten(1)

    def _expanded(self, q, layer, step, latents, ropes) -> torch.Tensor:
        module = self._expanded_layers[layer.layer_id]
        query = q.view(-1, layer.tp_q_head_num, layer.qk_head_dim)
        nope, rope = query.split([module.qk_nope_head_dim, module.qk_rope_head_dim], dim=-1)
        out = mla_prefill_expanded(
            nope,
            rope,
            latents,
            ropes,
            step.block_table,
            step.query_lens,
            step.kv_lens,
            module.w_kc,
            module.w_vc,
            layer.scaling,
        )
        return out.flatten(1)

    def _caches(self, layer_id: int) -> tuple[torch.Tensor, torch.Tensor]:
        latents, ropes = self._pool.latents_and_ropes(layer_id)
        return as_blocks(latents, self._page_size), as_blocks(ropes, self._page_size)
