"""A small float checkpoint of random weights in two files, with dense and expert layers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

HIDDEN, INTER, LATENT = 16, 24, 8
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": HIDDEN,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "torch_dtype": "bfloat16",
}


def float_tensors() -> dict[str, dict[str, torch.Tensor]]:
    """By file and name; in bfloat16, as they are published."""
    generator = torch.Generator().manual_seed(0)

    def weight(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).bfloat16()

    first = {
        "model.embed_tokens.weight": weight(10, HIDDEN),
        "model.layers.0.input_layernorm.weight": weight(HIDDEN),
        "model.layers.0.self_attn.q_a_proj.weight": weight(LATENT, HIDDEN),
        "model.layers.0.self_attn.kv_a_proj_with_mqa.weight": weight(LATENT + 2, HIDDEN),
        "model.layers.0.self_attn.kv_b_proj.weight": weight(HIDDEN, LATENT),
        "model.layers.0.self_attn.o_proj.weight": weight(HIDDEN, HIDDEN),
        "model.layers.0.mlp.gate_proj.weight": weight(INTER, HIDDEN),
        "model.layers.0.mlp.up_proj.weight": weight(INTER, HIDDEN),
        "model.layers.0.mlp.down_proj.weight": weight(HIDDEN, INTER),
    }
    second = {
        "model.layers.1.mlp.gate.weight": weight(2, HIDDEN),
        "lm_head.weight": weight(10, HIDDEN),
    }
    for expert in range(2):
        name = f"model.layers.1.mlp.experts.{expert}"
        second[f"{name}.gate_proj.weight"] = weight(INTER, HIDDEN)
        second[f"{name}.up_proj.weight"] = weight(INTER, HIDDEN)
        second[f"{name}.down_proj.weight"] = weight(HIDDEN, INTER)
    return dict(zip(SHARDS, (first, second)))


@pytest.fixture
def float_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "float"
    folder.mkdir()
    files = float_tensors()
    for name, tensors in files.items():
        save_file(tensors, folder / name)
    where = {tensor: name for name, tensors in files.items() for tensor in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    return folder
