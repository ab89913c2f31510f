"""Dimensions of well-known models, as their published ``config.json`` gives them.

Only the keys that size weights, caches and operators; any other model is read from its own folder.
"""

from __future__ import annotations

from typing import Any

_DEEPSEEK_V3: dict[str, Any] = {
    "num_hidden_layers": 61,
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "n_group": 8,
    "topk_group": 4,
    "vocab_size": 129280,
    "num_nextn_predict_layers": 1,
}


def _gqa(
    layers: int, hidden: int, heads: int, kv_heads: int, head_dim: int, inter: int, vocab: int
):
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate_size": inter,
        "vocab_size": vocab,
    }


def _experts(count: int, top_k: int, inter: int) -> dict[str, int]:
    return {"num_experts": count, "num_experts_per_tok": top_k, "moe_intermediate_size": inter}


BUILT_IN: dict[str, dict[str, Any]] = {
    "deepseek-v3": _DEEPSEEK_V3,
    "deepseek-r1": _DEEPSEEK_V3,
    "kimi-k2": {
        **_DEEPSEEK_V3,
        "first_k_dense_replace": 1,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "n_routed_experts": 384,
        "n_group": 1,
        "topk_group": 1,
        "vocab_size": 163840,
        "num_nextn_predict_layers": 0,
    },
    "qwen3-235b-a22b": {
        **_gqa(94, 4096, 64, 4, 128, 12288, 151936),
        **_experts(128, 8, 1536),
    },
    "qwen3-30b-a3b": {**_gqa(48, 2048, 32, 4, 128, 6144, 151936), **_experts(128, 8, 768)},
    "qwen3-32b": _gqa(64, 5120, 64, 8, 128, 25600, 151936),
    "qwen2.5-72b": _gqa(80, 8192, 64, 8, 128, 29568, 152064),
    "smollm2-135m-instruct": {
        **_gqa(30, 576, 9, 3, 64, 1536, 49152),
        "tie_word_embeddings": True,
    },
    "llama-3.1-8b": _gqa(32, 4096, 32, 8, 128, 14336, 128256),
    "llama-3.1-70b": _gqa(80, 8192, 64, 8, 128, 28672, 128256),
}
