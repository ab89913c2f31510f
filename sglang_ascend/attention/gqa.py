"""Grouped-query attention over SGLang's MHA cache pool."""

from __future__ import annotations

import torch

from sglang_ascend.attention.metadata import StepMetadata
from sglang_ascend.attention.paging import as_blocks
from sglang_ascend.ops.kv_write import kv_write
from sglang_ascend.ops.paged_gqa_attention import paged_gqa_attention


class GqaAttention:
    """Writes new keys and values and attends; prefill, decode and verify are one call."""

    def __init__(self, pool, page_size: int) -> None:
        self._pool = pool
        self._page_size = page_size

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        layer,
        step: StepMetadata,
        slots: torch.Tensor | None,
    ) -> torch.Tensor:
        """Attention of one layer.

        Args:
            q: [tokens, heads * head_dim]; k, v: [tokens, kv heads, head_dim] of the new tokens.
            layer: SGLang's ``RadixAttention``.
            slots: [tokens] int64 cache slots of the new tokens, None where nothing is written.

        Returns:
            [tokens, heads * value head_dim]
        """
        keys = as_blocks(self._pool.get_key_buffer(layer.layer_id), self._page_size)
        values = as_blocks(self._pool.get_value_buffer(layer.layer_id), self._page_size)
        if slots is not None:
            kv_write(
                k.view(-1, layer.tp_k_head_num, layer.qk_head_dim),
                v.view(-1, layer.tp_v_head_num, layer.v_head_dim),
                keys,
                values,
                slots,
            )
        out = paged_gqa_attention(
            q.view(-1, layer.tp_q_head_num, layer.qk_head_dim),
            keys,
            values,
            step.block_table,
            step.query_lens,
            step.kv_lens,
            layer.scaling,
        )
        return out.flatten(1)
