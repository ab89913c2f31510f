"""The error of each layer's output on a text, in INT8 against float."""

from __future__ import annotations

from pathlib import Path

import torch

from sglang_ascend.deploy.int8_layers import takes_int8
from sglang_ascend.errors import ConfigError
from sglang_ascend.ops.dynamic_quant import dynamic_quant
from sglang_ascend.ops.quant_matmul import quant_matmul
from sglang_ascend.quantization.weights import quantise_weight

#: Tokens of the text that are used.
TOKENS = 512


@torch.inference_mode()
def measure(folder: Path, text: Path) -> dict[str, float]:
    """Relative error of the output of every linear layer that takes INT8, by layer.

    Each layer sees the inputs of the float model, so that its error is its own.

    Raises:
        ConfigError: a text that cannot be read or has no two tokens.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        words = text.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--calibrate {text} cannot be read: {error}; give a text file"
        ) from error
    ids = AutoTokenizer.from_pretrained(folder)(words, return_tensors="pt").input_ids[:, :TOKENS]
    if ids.shape[1] < 2:
        raise ConfigError(f"--calibrate {text} has no text; give a page or more")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    errors: dict[str, float] = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and takes_int8(name):
            module.register_forward_hook(_measure_into(errors, name))
    model(ids)
    return errors


def _measure_into(errors: dict[str, float], name: str):
    def hook(module: torch.nn.Linear, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        rows = inputs[0].reshape(-1, module.in_features)
        q, x_scale = dynamic_quant(rows)
        weight, scale = quantise_weight(module.weight)
        y = quant_matmul(q, x_scale, weight.t(), scale.flatten(), torch.float32)
        if module.bias is not None:
            y += module.bias
        expected = output.reshape(y.shape)
        errors[name] = float((y - expected).norm() / expected.norm().clamp_min(1e-30))

    return hook
