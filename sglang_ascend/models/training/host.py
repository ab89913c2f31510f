"""Preparing a process that trains or measures: transformers importable, one attention form."""

from __future__ import annotations

import sys


def hide_torchvision() -> None:
    """Keep transformers from importing torchvision, for a process that handles no image.

    PyPI's torchvision fails to import beside a CPU build of torch. ``None`` is Python's own mark
    for a module that must not be imported. Call it before anything imports transformers.
    """
    sys.modules.setdefault("torchvision", None)


def padded_causal_attention(module, query, key, value, attention_mask, scaling=None, **_):
    """Causal attention through torch's fused CPU kernel, which wants one head size for q, k and v.

    Args:
        query, key: [batch, heads, length, 96]. value: [batch, heads, length, 32].
        attention_mask: ignored; every training window is causal and has no padding.

    Returns:
        ([batch, length, heads, 32], None), as transformers' attention interface asks.
    """
    from torch.nn import functional

    size = value.shape[-1]
    value = functional.pad(value, (0, query.shape[-1] - size))
    output = functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scaling
    )
    return output[..., :size].transpose(1, 2).contiguous(), None


def new_main_model(config):
    """A randomly initialised transformers model, set up to train fast on a CPU."""
    from transformers import DeepseekV3ForCausalLM
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register("padded_causal", padded_causal_attention)
    model = DeepseekV3ForCausalLM(config)
    model.set_attn_implementation("padded_causal")
    model.set_experts_implementation("grouped_mm")
    return model
