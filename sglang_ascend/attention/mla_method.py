"""Which way through MLA a step takes: SGLang's handler for our attention backend."""

from __future__ import annotations

from sglang.srt.models.deepseek_common.attention_forward_methods.forward_methods import (
    AttnForwardMethod,
)

from sglang_ascend.ops.mla_prefill_cost import MlaDims, choose_mla_prefill
from sglang_ascend.ops.paged_mla_attention import SPEC as ABSORBED


def choose_method(attn, forward_batch) -> AttnForwardMethod:
    """Absorbed for decode and verification; for prefill the cheaper one.

    The reference device takes the way that the NPU would take, its limit on absorbed queries
    included, so that what is proven there is what production runs.

    Args:
        attn: SGLang's ``DeepseekV2AttentionMLA``.
        forward_batch: the step; its host-side lengths are the only input of the choice, so all
            ranks of an attention TP group choose alike.
    """
    if not forward_batch.forward_mode.is_extend_without_speculative():
        return AttnForwardMethod.MLA
    dims = MlaDims(
        heads=attn.num_local_heads,
        kv_lora=attn.kv_lora_rank,
        rotary=attn.qk_rope_head_dim,
        nope=attn.qk_nope_head_dim,
        value=attn.v_head_dim,
        element_bytes=attn.w_kc.element_size(),
    )
    choice = choose_mla_prefill(
        forward_batch.extend_seq_lens_cpu,
        forward_batch.seq_lens_cpu.tolist(),
        dims,
        max_absorbed_query_len=ABSORBED.npu_limits["query_len"].maximum,
    )
    return AttnForwardMethod.MHA if choice == "expanded" else AttnForwardMethod.MLA
