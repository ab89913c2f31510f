"""SGLang's attention backend on top of the operator boundary, the same code on both devices."""

from __future__ import annotations

import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend

from sglang_ascend.attention import metadata
from sglang_ascend.attention.gqa import GqaAttention
from sglang_ascend.attention.mla import MlaAttention


class PagedAttentionBackend(AttentionBackend):
    """Paged attention for GQA and MLA models.

    The model's cache pool decides which of the two serves; both write new keys and values through
    the ``ops`` boundary and read the cache by block table, so every page size works alike.
    """

    def __init__(self, runner) -> None:
        super().__init__()
        self.page_size = runner.page_size
        self._req_to_token = runner.req_to_token_pool.req_to_token
        self.most_blocks = -(-self._req_to_token.shape[1] // runner.page_size)
        attention = MlaAttention if runner.use_mla_backend else GqaAttention
        self._attention = attention(runner.token_to_kv_pool, runner.page_size)
        if runner.use_mla_backend:
            # Found by name by SGLang's expanded prefill; GQA models must not have it.
            self.prepare_prefill_qkv = self._attention.prepare_prefill_qkv

    def init_forward_metadata(self, forward_batch) -> None:
        self.forward_metadata = (
            None
            if forward_batch.forward_mode.is_idle()
            else metadata.build(forward_batch, self._req_to_token, self.page_size)
        )

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        """Length of a padding request: one token, so that no row of attention is empty."""
        return 1

    get_cpu_graph_seq_len_fill_value = get_cuda_graph_seq_len_fill_value

    def support_triton(self) -> bool:
        return False

    def forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache=True, **kwargs):
        return self._forward(q, k, v, layer, forward_batch, save_kv_cache, **kwargs)

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True, **kwargs):
        return self._forward(q, k, v, layer, forward_batch, save_kv_cache, **kwargs)

    def _forward(self, q, k, v, layer, forward_batch, save_kv_cache, **kwargs) -> torch.Tensor:
        slots = forward_batch.out_cache_loc if save_kv_cache and k is not None else None
        return self._attention.forward(q, k, v, layer, self.forward_metadata, slots, **kwargs)
