"""Small models of random weights, whose serving shows what kernels alone do not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from sglang_ascend.models import catalog

#: Two kinds of models, a shallow and a deep one of each: dense ones, whose decode steps are
#: replayed, and ones with latent attention and experts, where nothing is. As in small models of the
#: latter kind, a third of the layers has no experts.
DENSE, EXPERTS = "dense", "experts"
LAYERS = {DENSE: (2, 10), EXPERTS: (3, 9)}
VOCABULARY = 2048
_COMMON = {
    "bos_token_id": 0,
    "eos_token_id": 1,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "vocab_size": VOCABULARY,
}
_DENSE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 384,
    "intermediate_size": 1024,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "attention_bias": False,
    "mlp_bias": False,
}
_EXPERTS = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 192,
    "intermediate_size": 192,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "attention_bias": False,
    "moe_layer_freq": 1,
    "moe_intermediate_size": 64,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "n_group": 4,
    "topk_group": 2,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "q_lora_rank": 64,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 64,
    "v_head_dim": 32,
    "num_nextn_predict_layers": 0,
    "rope_scaling": {
        "type": "yarn",
        "factor": 4,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 1024,
    },
}


def config(kind: str, layers: int) -> dict[str, Any]:
    """``config.json`` of a probe."""
    own = {**_EXPERTS, "first_k_dense_replace": layers // 3} if kind == EXPERTS else _DENSE
    return {**_COMMON, **own, "num_hidden_layers": layers}


def write(kind: str, layers: int, folder: Path) -> Path:
    """A checkpoint folder without weights, for ``--load-format dummy``, with a tokenizer."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config(kind, layers)))
    tokenizer = catalog.resolve(catalog.TINY_DEEPSEEK_V3)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / file, folder / file)
    return folder
