"""A small real checkpoint folder, to be damaged by the tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

GQA_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "float32",
    "hidden_size": 12,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "max_position_embeddings": 128,
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Two indexed safetensors shards, a configuration and a tokenizer file."""
    folder = tmp_path / "model"
    folder.mkdir()
    shards = {
        "model-00001-of-00002.safetensors": {"embed": torch.ones(7, 12), "norm": torch.ones(12)},
        "model-00002-of-00002.safetensors": {"head": torch.ones(7, 12, dtype=torch.bfloat16)},
    }
    for name, tensors in shards.items():
        save_file(tensors, folder / name)
    weight_map = {tensor: shard for shard, tensors in shards.items() for tensor in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(GQA_CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    return folder
