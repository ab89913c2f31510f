"""Dimensions of the models whose shapes the contract cases use."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GqaModel:
    """A dense model with grouped-query attention."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inter: int


@dataclass(frozen=True)
class MlaModel:
    """A DeepSeek-V3-architecture model. inter: width of one routed expert."""

    hidden: int
    heads: int
    q_lora: int
    kv_lora: int
    rope: int
    nope: int
    value: int
    experts: int
    groups: int
    top_groups: int
    top_k: int
    inter: int


SMOLLM2_135M = GqaModel(hidden=576, heads=9, kv_heads=3, head_dim=64, inter=1536)
TINY_DEEPSEEK = MlaModel(256, 8, 128, 512, 64, 32, 32, 16, 4, 2, 4, 64)
DEEPSEEK_V3 = MlaModel(7168, 128, 1536, 512, 64, 128, 128, 256, 8, 4, 8, 2048)
