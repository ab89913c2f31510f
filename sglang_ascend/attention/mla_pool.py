"""MLA cache pool with latents and rotary keys in buffers of their own.

SGLang's pool keeps both in one row of latent + rope elements. The NPU's paged operators take two
contiguous caches, so they are allocated apart, on both devices alike.
"""

from __future__ import annotations

import torch
from sglang.srt.constants import GPU_MEMORY_TYPE_KV_CACHE
from sglang.srt.mem_cache.memory_pool import MLATokenToKVPool, unwrap_write_loc

from sglang_ascend.attention.gqa_pool import ZerosOnDemand
from sglang_ascend.ops.mla_kv_write import mla_kv_write


class SplitMlaPool(MLATokenToKVPool):
    """``kv_buffer`` holds the latents of all layers, then the rotary keys of all layers.

    Each buffer is [slots, 1, latent or rope]; the last page takes the writes of padding rows.
    Whatever SGLang does buffer by buffer (sizes, moves, pointers) holds for this list as well.
    """

    def _create_buffers(self) -> None:
        with self.memory_saver_adapter.region(GPU_MEMORY_TYPE_KV_CACHE), ZerosOnDemand():
            self.kv_buffer = [
                torch.zeros(
                    (self.size + self.page_size, 1, width),
                    dtype=self.store_dtype,
                    device=self.device,
                )
                for width in (self.kv_lora_rank, self.qk_rope_head_dim)
                for _ in range(self.layer_num)
            ]

    def latents_and_ropes(self, layer_id: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The two caches of a layer, [slots, 1, latent] and [slots, 1, rope]."""
        index = layer_id - self.start_layer
        if self.layer_transfer_counter is not None:
            self.layer_transfer_counter.wait_until(index)
        return self.kv_buffer[index], self.kv_buffer[self.layer_num + index]

    def get_key_buffer(self, layer_id: int) -> torch.Tensor:
        raise NotImplementedError(
            "latents and rotary keys have no common buffer here; use latents_and_ropes"
        )

    def get_value_buffer(self, layer_id: int) -> torch.Tensor:
        return self.latents_and_ropes(layer_id)[0]

    def set_kv_buffer(self, layer, loc_info, cache_k, cache_v, layer_id_override=None) -> None:
        """Write combined rows [tokens, 1, latent + rope]."""
        latent, rope = cache_k.split([self.kv_lora_rank, self.qk_rope_head_dim], dim=-1)
        self.set_mla_kv_buffer(layer, loc_info, latent, rope, layer_id_override)

    def set_mla_kv_buffer(
        self, layer, loc_info, cache_k_nope, cache_k_rope, layer_id_override=None
    ) -> None:
        """Write latents [tokens, 1, latent] and rotary keys [tokens, 1, rope]."""
        slots, _, _ = unwrap_write_loc(loc_info)
        layer_id = layer.layer_id if layer_id_override is None else layer_id_override
        latents, ropes = self.latents_and_ropes(layer_id)
        # Blocks of one slot: where pages begin does not matter to a write by slot.
        mla_kv_write(
            cache_k_nope.flatten(1).to(self.dtype),
            cache_k_rope.flatten(1).to(self.dtype),
            latents.unsqueeze(1),
            ropes.unsqueeze(1),
            slots,
        )

    def get_mla_kv_buffer(self, layer, loc, dst_dtype=None):
        """Rows at ``loc``: latents [tokens, 1, latent] and rotary keys [tokens, 1, rope]."""
        latents, ropes = self.latents_and_ropes(layer.layer_id)
        dtype = dst_dtype or self.dtype
        return latents[loc].to(dtype), ropes[loc].to(dtype)

    def get_contiguous_buf_infos(self):
        """Address, bytes and bytes a page of every buffer, for KV transfer."""
        return (
            [buffer.data_ptr() for buffer in self.kv_buffer],
            [buffer.nbytes for buffer in self.kv_buffer],
            [buffer[0].nbytes * self.page_size for buffer in self.kv_buffer],
        )

    def get_cpu_copy(self, indices, mamba_indices=None, req_pool_index=None):
        """Rows at ``indices`` of every buffer, in host memory, in chunks, for a retraction."""
        return [
            [buffer[chunk].cpu() for chunk in indices.split(self.cpu_offloading_chunk_size)]
            for buffer in self.kv_buffer
        ]

    def load_cpu_copy(self, kv_cache_cpu, indices, mamba_indices=None, req_pool_index=None):
        """Put back what ``get_cpu_copy`` returned, at ``indices``."""
        chunks = indices.split(self.cpu_offloading_chunk_size)
        for buffer, saved in zip(self.kv_buffer, kv_cache_cpu, strict=True):
            for chunk, rows in zip(chunks, saved, strict=True):
                buffer[chunk] = rows.to(buffer.device)
