"""Smooth scales: outliers of an activation move into the weights that it meets.

An activation with a few large channels has a large INT8 step for all others. Each channel of a
projection's input is divided by s and the weight's column multiplied by it, which changes no
product. The division goes into what makes the input: the norm before q, k, v or before gate and up,
and the rows of up before down. So a server runs nothing more.

Source: SmoothQuant, arXiv 2211.10438, equation 4: s = max|x|^alpha / max|w|^(1 - alpha).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sglang_ascend.deploy import model_folder
from sglang_ascend.deploy.safetensors_header import TensorInfo
from sglang_ascend.errors import ConfigError
from sglang_ascend.quantization import calibration

#: Models in which nothing but these projections reads a norm, and which multiply by its weight.
ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
ALPHA = 0.5
#: Tokens of the text that are used, and of one pass.
TOKENS, WINDOW = 2048, 512
#: By layer of the model: what makes the input, and the projections that read it. The rows of up are
#: scaled before its columns, whose scale looks at the whole weight.
_GROUPS = (
    ("mlp.up_proj", ("mlp.down_proj",)),
    ("input_layernorm", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
    ("post_attention_layernorm", ("mlp.gate_proj", "mlp.up_proj")),
)
_SMALLEST = 1e-5
#: Dtypes shorter than float32, in safetensors' spelling.
_SHORT = {"BF16": torch.bfloat16, "F16": torch.float16}


@dataclass
class Factor:
    """What a tensor is multiplied by: its rows or only axis [out], its columns [in], float32."""

    rows: torch.Tensor | None = None
    columns: torch.Tensor | None = None

    def apply(self, tensor: torch.Tensor) -> torch.Tensor:
        """tensor [out, in] or [out] of any float dtype -> the product in float32."""
        result = tensor.float()
        if self.rows is not None:
            result = result * (self.rows if tensor.dim() == 1 else self.rows[:, None])
        return result if self.columns is None else result * self.columns


@dataclass(frozen=True)
class Smoothing:
    """Factors by name of tensor, and what they were made from, as JSON."""

    factors: dict[str, Factor]
    made_from: dict[str, Any]


@dataclass(frozen=True)
class _Group:
    source: str
    followers: tuple[str, ...]


def plan(config: dict[str, Any], names: Collection[str]) -> list[_Group]:
    """The groups of a dense Llama-like checkpoint.

    Args:
        config: content of ``config.json``.
        names: its tensors.

    Raises:
        ConfigError: another architecture, or a projection or norm that is missing.
    """
    found = (config.get("architectures") or ["none"])[0]
    if found not in ARCHITECTURES:
        raise ConfigError(
            f"--smooth does not take {found}: it takes dense models whose norms feed only q, k, v "
            f"or gate, up ({', '.join(ARCHITECTURES)}); leave --smooth out"
        )
    groups = []
    for layer in range(model_folder.text_config(config)["num_hidden_layers"]):
        for source, followers in _GROUPS:
            prefix = f"model.layers.{layer}."
            for part in (source, *followers):
                if f"{prefix}{part}.weight" not in names:
                    raise ConfigError(
                        f"--smooth needs {prefix}{part}.weight, which the checkpoint does not "
                        "have; leave --smooth out"
                    )
            groups.append(_Group(prefix + source, tuple(prefix + name for name in followers)))
    return groups


@torch.inference_mode()
def calibrate(
    folder: Path, config: dict[str, Any], tensors: Iterable[TensorInfo], text: Path, alpha: float
) -> Smoothing:
    """Run a text through the float model and choose the scales.

    Args:
        folder: a checkpoint that transformers loads, with a tokenizer.
        config: its ``config.json``.
        tensors: what it holds. A norm keeps its dtype, and its scale is the one that is left once
            the norm is rounded to it, so that rounding costs nothing.
        alpha: 0 moves the outliers of weights into activations, 1 those of activations.

    Raises:
        ConfigError: a model that ``plan`` does not take, a text that cannot be read or has no two
            tokens, or an alpha outside 0..1.
    """
    if not 0 <= alpha <= 1:
        raise ConfigError(
            f"--alpha {alpha} is outside 0..1; give the share of an outlier that moves into the "
            f"weights, {ALPHA} by default"
        )
    dtypes = {tensor.name: tensor.dtype for tensor in tensors}
    groups = plan(config, dtypes)
    ids = calibration.tokens("--smooth", text, folder, TOKENS)
    model = calibration.float_model(folder)
    layers = dict(model.named_modules())
    largest: dict[int, torch.Tensor] = {}
    hooks = [
        layers[group.followers[0]].register_forward_pre_hook(_note_into(largest, index))
        for index, group in enumerate(groups)
    ]
    for window in ids.split(WINDOW, dim=1):
        model(window)
    for hook in hooks:
        hook.remove()
    factors: dict[str, Factor] = {}
    for index, group in enumerate(groups):
        weights = [_scaled(layers, factors, name) for name in group.followers]
        scale = _scale(largest[index], weights, alpha)
        source = f"{group.source}.weight"
        if layers[group.source].weight.dim() == 1:
            scale = _left_by_rounding(layers[group.source].weight, scale, dtypes[source])
        made = factors.setdefault(source, Factor())
        made.rows = 1 / scale
        if getattr(layers[group.source], "bias", None) is not None:
            factors[f"{group.source}.bias"] = Factor(rows=1 / scale)
        for name in group.followers:
            factors.setdefault(f"{name}.weight", Factor()).columns = scale
    digest = hashlib.sha256(text.read_bytes()).hexdigest()
    return Smoothing(factors, {"alpha": alpha, "text_sha256": digest})


def fold(model: torch.nn.Module, factors: dict[str, Factor]) -> None:
    """Apply the factors to a float model under transformers, in place."""
    parameters = dict(model.named_parameters())
    for name, factor in factors.items():
        parameters[name].data = factor.apply(parameters[name].data)


def _note_into(largest: dict[int, torch.Tensor], key: int):
    def hook(module: torch.nn.Module, inputs: tuple[torch.Tensor]) -> None:
        found = inputs[0].abs().flatten(0, -2).amax(0)
        largest[key] = torch.maximum(largest[key], found) if key in largest else found

    return hook


def _scaled(layers: dict, factors: dict[str, Factor], name: str) -> torch.Tensor:
    """A projection's weight as far as it is scaled already."""
    weight = layers[name].weight
    factor = factors.get(f"{name}.weight")
    return weight if factor is None else factor.apply(weight)


def _scale(largest: torch.Tensor, weights: Iterable[torch.Tensor], alpha: float) -> torch.Tensor:
    """largest: max|x| [in]; weights: [out, in] each -> s [in], finite and above zero."""
    peaks = torch.stack([weight.abs().amax(0) for weight in weights]).amax(0)
    scale = largest.clamp_min(_SMALLEST) ** alpha / peaks.clamp_min(_SMALLEST) ** (1 - alpha)
    return scale.clamp_min(_SMALLEST)


def _left_by_rounding(norm: torch.Tensor, scale: torch.Tensor, dtype: str) -> torch.Tensor:
    """The scale that a norm [in] really has once norm / scale is rounded to ``dtype``."""
    rounded = (norm / scale).to(_SHORT.get(dtype, torch.float32)).float()
    # Beyond what the dtype holds, or zero, a channel stays as it is.
    usable = (rounded != 0) & rounded.isfinite()
    return torch.where(usable, norm / rounded, 1.0)
