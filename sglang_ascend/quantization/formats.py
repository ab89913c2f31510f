"""The two forms in which INT8 checkpoints are published, as they are written here."""

from __future__ import annotations

from typing import Any

import torch

from sglang_ascend.deploy import int8_description as description
from sglang_ascend.deploy.int8_layers import SCHEME

FORMATS = ("modelslim", "compressed-tensors")


def layer_tensors(
    layer: str, q: torch.Tensor, scale: torch.Tensor, form: str
) -> dict[str, torch.Tensor]:
    """The tensors of one layer: q [out, in] int8, scale [out, 1] float32."""
    tensors = {f"{layer}.weight": q, f"{layer}.weight_scale": scale}
    if form == "modelslim":
        tensors[f"{layer}.weight_offset"] = torch.zeros_like(scale)
    return tensors


def modelslim_description(names: dict[str, bool]) -> dict[str, Any]:
    """``quant_model_description.json``. names: every tensor, and whether its layer is INT8."""
    schemes = {
        name: description.MODELSLIM_INT8 if int8 else description.MODELSLIM_FLOAT
        for name, int8 in sorted(names.items())
    }
    head = {"model_quant_type": description.MODELSLIM_INT8, "version": "1.0.0", "group_size": 0}
    return {**head, **schemes}


def compressed_config(float_layers: list[str]) -> dict[str, Any]:
    """``quantization_config`` of ``config.json``. float_layers: linear layers left in float."""
    common = {"num_bits": 8, "type": "int", "symmetric": True, "group_size": None}
    return {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {**common, "strategy": "channel", "dynamic": False},
                "input_activations": {**common, "strategy": "token", "dynamic": True},
                "output_activations": None,
            }
        },
        "ignore": float_layers,
        "kv_cache_scheme": None,
        "produced_by": f"sglang_ascend {SCHEME}",
    }
