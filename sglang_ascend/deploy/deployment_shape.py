"""The shape of a model: what ``config.json`` says about sizes of weights, caches and operators."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglang_ascend.deploy import layout, model_folder
from sglang_ascend.deploy.architectures import nearest
from sglang_ascend.deploy.deployment_models import BUILT_IN
from sglang_ascend.errors import ConfigError
from sglang_ascend.models import catalog


@dataclass(frozen=True)
class ModelShape:
    """Dimensions of a decoder-only model; counts are elements unless a name says otherwise.

    Attributes:
        layers: decoder layers, of which the first ``dense_layers`` have no experts.
        head_dim: elements of a query and key head (MLA: nope + rope).
        kv_lora: rank of the MLA latent; 0 for grouped-query attention.
        experts: routed experts of a layer; 0 for a dense model.
        mtp_layers: draft layers that the checkpoint brings along.
        config: the language model's part of ``config.json``.
    """

    name: str
    layers: int
    dense_layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    v_dim: int
    q_lora: int
    kv_lora: int
    rope_dim: int
    intermediate: int
    experts: int
    top_k: int
    shared_experts: int
    expert_intermediate: int
    vocab: int
    mtp_layers: int
    tied_embeddings: bool
    config: dict[str, Any]

    @property
    def is_mla(self) -> bool:
        return self.kv_lora > 0

    @property
    def moe_layers(self) -> int:
        return self.layers - self.dense_layers

    @property
    def expert_parameters(self) -> int:
        """Of one expert: gate, up and down projection."""
        return 3 * self.hidden * self.expert_intermediate

    @property
    def dense_mlp_parameters(self) -> int:
        return 3 * self.hidden * self.intermediate

    @property
    def attention_replicated_parameters(self) -> int:
        """Of a layer's down-projections, which every rank of an attention group holds whole."""
        if not self.is_mla:
            return 0
        return self.hidden * (self.q_lora + self.kv_lora + self.rope_dim)

    @property
    def attention_head_parameters(self) -> int:
        """Of a layer's projections that are split by heads."""
        if not self.is_mla:
            queries = self.heads * (self.head_dim + self.v_dim)
            return self.hidden * (queries + self.kv_heads * (self.head_dim + self.v_dim))
        nope = self.head_dim - self.rope_dim
        query = (self.q_lora or self.hidden) * self.heads * self.head_dim
        latent = self.kv_lora * self.heads * (nope + self.v_dim)
        return query + latent + self.heads * self.v_dim * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters, without MTP layers, norms and biases."""
        attention = self.attention_replicated_parameters + self.attention_head_parameters
        moe = (self.experts + self.shared_experts) * self.expert_parameters
        moe += self.experts * self.hidden
        mlp = self.dense_layers * self.dense_mlp_parameters + self.moe_layers * moe
        heads = 1 if self.tied_embeddings else 2
        return self.layers * attention + mlp + heads * self.vocab * self.hidden


def from_config(name: str, config: dict[str, Any]) -> ModelShape:
    """Read the dimensions out of a configuration.

    Raises:
        ConfigError: a dimension that everything depends on is missing.
    """

    def need(key: str) -> int:
        value = config.get(key)
        if not isinstance(value, int) or value < 1:
            raise ConfigError(
                f"model {name}: config.json has {key}={value!r}; a whole number above 0 is needed"
            )
        return value

    layers, hidden, heads = map(need, ("num_hidden_layers", "hidden_size", "num_attention_heads"))
    kv_lora = config.get("kv_lora_rank") or 0
    rope = (config.get("qk_rope_head_dim") or 0) if kv_lora else 0
    head_dim = config.get("head_dim") or hidden // heads
    v_dim = head_dim
    if kv_lora:
        head_dim = need("qk_nope_head_dim") + rope
        v_dim = need("v_head_dim")
    experts = layout.routed_experts(config) or 0
    dense = config.get("first_k_dense_replace", 0) if experts else layers
    return ModelShape(
        name=name,
        layers=layers,
        dense_layers=min(dense, layers),
        hidden=hidden,
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=head_dim,
        v_dim=v_dim,
        q_lora=(config.get("q_lora_rank") or 0) if kv_lora else 0,
        kv_lora=kv_lora,
        rope_dim=rope,
        intermediate=config.get("intermediate_size") or need("moe_intermediate_size"),
        experts=experts or 0,
        top_k=need("num_experts_per_tok") if experts else 0,
        shared_experts=(config.get("n_shared_experts") or 0) if experts else 0,
        expert_intermediate=need("moe_intermediate_size") if experts else 0,
        vocab=need("vocab_size"),
        mtp_layers=config.get("num_nextn_predict_layers") or 0,
        tied_embeddings=bool(config.get("tie_word_embeddings")),
        config=config,
    )


def load(name_or_path: str) -> ModelShape:
    """The shape of a built-in model, or of a folder or file with a ``config.json``.

    Raises:
        ConfigError: neither a known name nor a readable configuration.
    """
    key = name_or_path.lower()
    if key in BUILT_IN:
        return from_config(key, BUILT_IN[key])
    path = Path(name_or_path).expanduser()
    if key == catalog.TINY_DEEPSEEK_V3:
        path = catalog.resolve(key)
    if path.name == "config.json":
        path = path.parent
    if not path.exists():
        raise ConfigError(
            f"model {name_or_path!r} is neither built in nor a folder; nearest: "
            f"{', '.join(nearest(key, BUILT_IN))} (known: {', '.join(sorted(BUILT_IN))}), or give "
            "the folder that holds its config.json"
        )
    return from_config(path.name, model_folder.text_config(model_folder.read_config(path)))
