"""The error of each layer's output on a text, in INT8 against float."""

from __future__ import annotations

from pathlib import Path

import torch

from sglang_ascend.deploy.int8_layers import takes_int8
from sglang_ascend.ops.dynamic_quant import dynamic_quant
from sglang_ascend.ops.quant_matmul import quant_matmul
from sglang_ascend.quantization import calibration, smoothing
from sglang_ascend.quantization.weights import quantise_weight

#: Tokens of the text that are used.
TOKENS = 512


@torch.inference_mode()
def measure(
    folder: Path, text: Path, factors: dict[str, smoothing.Factor] | None = None
) -> dict[str, float]:
    """Relative error of the output of every linear layer that takes INT8, by layer.

    Each layer sees the inputs of the float model, so that its error is its own.

    Args:
        factors: smooth scales that the weights are written with.

    Raises:
        ConfigError: a text that cannot be read or has no two tokens.
    """
    ids = calibration.tokens("--calibrate", text, folder, TOKENS)
    model = calibration.float_model(folder)
    smoothing.fold(model, factors or {})
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
