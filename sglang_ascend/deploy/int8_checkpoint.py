"""The INT8 layers of a checkpoint, and whether all their tensors are there. Reads headers only.

An INT8 layer has ``weight`` [out, in] int8 and ``weight_scale`` [out, 1] float; ModelSlim adds
``weight_offset`` [out, 1], which is zero for a symmetric scheme and is checked when it is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglang_ascend.deploy import int8_description as description
from sglang_ascend.deploy.int8_description import Kind
from sglang_ascend.deploy.int8_layers import FUSED, takes_int8, why_not
from sglang_ascend.deploy.safetensors_header import TensorInfo
from sglang_ascend.errors import ConfigError

_SCALE_DTYPES = ("F32", "BF16", "F16")
_AGAIN = "quantise the float checkpoint again (`python -m sglang_ascend.quantize`) or download it"
_FROM_HIDDEN = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "q_a_proj")
_TO_HIDDEN = ("o_proj", "down_proj")


@dataclass(frozen=True)
class StoredLayers:
    """The layers of a checkpoint by how they are stored.

    Attributes:
        kind: who wrote it; ``float`` is quantised when it is loaded.
        int8, others: names of layers with INT8 weights, and of all other weights.
        draft_layer: index of the MTP layer, which SGLang names ``model.decoder``.
    """

    kind: Kind
    int8: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    draft_layer: int | None = None

    def quantises(self, layer: str) -> bool:
        """Whether a float layer of the checkpoint becomes INT8 when it is loaded."""
        return self.kind == "float" and takes_int8(layer)

    def computes_int8(self, module: str) -> bool:
        """Whether SGLang's module ``module``, a linear layer or a group of experts, is INT8.

        Raises:
            ConfigError: a quantised checkpoint without this layer. Loading its weight unscaled
                would give wrong answers.
        """
        if self.kind == "float":
            return module.endswith(".experts") or takes_int8(module)
        for name in self._names(module):
            if name in self.int8:
                return True
            if name in self.others:
                return False
        raise ConfigError(
            f"the quantised checkpoint has no weight for the layer {module}; its layers are named "
            f"like {next(iter(sorted(self.int8)), 'none')}"
        )

    def _names(self, module: str) -> Iterable[str]:
        parent, _, last = module.rpartition(".")
        inner = FUSED[last][0] if last in FUSED else last
        name = f"{parent}.{inner}"
        yield name
        if name.startswith("model.decoder."):
            yield name.replace("model.decoder.", f"model.layers.{self.draft_layer}.", 1)
        yield f"language_model.{name}"
        yield name.removeprefix("language_model.")


def read(
    folder: Path, config: dict[str, Any], tensors: Iterable[TensorInfo], device: str
) -> StoredLayers:
    """Find and check the INT8 layers.

    Args:
        config: ``config.json``; its text part where it describes other modalities too.
        tensors: every tensor of the checkpoint; none for random weights.
        device: ``npu`` or ``reference``.

    Raises:
        ConfigError: names the tensor or layer, what is expected and what was found.
    """
    language = config.get("text_config") if isinstance(config.get("text_config"), dict) else config
    by_name = {tensor.name: tensor for tensor in tensors}
    kind = description.kind_of(folder, config)
    weights = {
        name.removesuffix(".weight"): tensor
        for name, tensor in by_name.items()
        if name.endswith(".weight")
    }
    int8 = {layer for layer, tensor in weights.items() if tensor.dtype == "I8"}
    if kind == "float":
        if int8:
            raise ConfigError(
                f"{min(int8)}.weight is INT8, but the checkpoint describes no quantisation: "
                f"expected {description.MODELSLIM_FILE} or quantization_config in config.json, "
                f"found neither; {_AGAIN}"
            )
        _check_quantisable(weights, device)
        return StoredLayers("float")
    if kind == "modelslim":
        _check_described(description.read_modelslim(folder), by_name)
    else:
        description.check_compressed(
            config.get("quantization_config") or config.get("compression_config")
        )
    for layer in sorted(int8):
        _check_layer(layer, by_name, kind, language, device)
    _check_own_tensors(int8, by_name, kind)
    _check_fused(int8, weights)
    blocks = _blocks(int8, weights)
    others = frozenset(weights) - int8 | {block for block, is_int8 in blocks.items() if not is_int8}
    return StoredLayers(
        kind,
        frozenset(int8) | {block for block, is_int8 in blocks.items() if is_int8},
        others,
        language.get("num_hidden_layers"),
    )


def _check_quantisable(weights: Mapping[str, TensorInfo], device: str) -> None:
    chosen = [layer for layer in sorted(weights) if takes_int8(layer)]
    if weights and not chosen:
        raise ConfigError(
            "ascend_w8a8 finds no layer to quantise: expected projections (q_proj, gate_proj and "
            f"the like), found layers like {min(weights)}; drop --quantization"
        )
    for layer in chosen:
        reason = why_not(weights[layer].shape, device)
        if reason:
            raise ConfigError(
                f"layer {layer} cannot take ascend_w8a8: {reason}; drop --quantization"
            )


def _check_described(schemes: Mapping[str, str], by_name: Mapping[str, TensorInfo]) -> None:
    accepted = (description.MODELSLIM_INT8, description.MODELSLIM_FLOAT)
    for name, scheme in schemes.items():
        if not name.endswith(".weight"):
            continue
        if scheme not in accepted:
            raise ConfigError(
                f"{name}: expected scheme {' or '.join(accepted)}, found {scheme!r} in "
                f"{description.MODELSLIM_FILE}; other schemes are not served: {_AGAIN}"
            )
        found = by_name.get(name)
        if found is not None and (found.dtype == "I8") != (scheme == description.MODELSLIM_INT8):
            raise ConfigError(
                f"{name}: {description.MODELSLIM_FILE} says {scheme}, the weight file holds "
                f"{found.dtype}; the two belong to different checkpoints: {_AGAIN}"
            )


def _check_layer(
    layer: str,
    by_name: Mapping[str, TensorInfo],
    kind: Kind,
    language: dict[str, Any],
    device: str,
) -> None:
    weight = by_name[f"{layer}.weight"]
    reason = why_not(weight.shape, device)
    if reason:
        raise ConfigError(f"layer {layer} cannot take ascend_w8a8: {reason}; {_AGAIN}")
    rows_out, rows_in = weight.shape
    _check_hidden(layer, rows_out, rows_in, language)
    per_channel = ("weight_scale", "weight_offset") if kind == "modelslim" else ("weight_scale",)
    for part in per_channel:
        name, found = f"{layer}.{part}", by_name.get(f"{layer}.{part}")
        if found is None:
            if part == "weight_offset":
                continue
            raise ConfigError(
                f"{name} is missing: expected float [{rows_out}, 1] beside the INT8 weight "
                f"[{rows_out}, {rows_in}], found nothing; {_AGAIN}"
            )
        if found.dtype not in _SCALE_DTYPES or found.shape != (rows_out, 1):
            raise ConfigError(
                f"{name}: expected {'/'.join(_SCALE_DTYPES)} [{rows_out}, 1], one for each output "
                f"channel, found {found.dtype} {list(found.shape)}{_groups(found, rows_in)}; "
                f"{_AGAIN}"
            )


def _groups(scale: TensorInfo, rows_in: int) -> str:
    if len(scale.shape) == 2 and scale.shape[1] > 1 and rows_in % scale.shape[1] == 0:
        return f" (made for group size {rows_in // scale.shape[1]})"
    return ""


def _check_hidden(layer: str, rows_out: int, rows_in: int, language: dict[str, Any]) -> None:
    hidden, name = language.get("hidden_size"), layer.rsplit(".", 1)[-1]
    if not isinstance(hidden, int) or not takes_int8(layer):
        return
    for names, axis, size in ((_FROM_HIDDEN, 1, rows_in), (_TO_HIDDEN, 0, rows_out)):
        if name in names and size != hidden:
            expected = [rows_out, rows_in]
            expected[axis] = hidden
            raise ConfigError(
                f"{layer}.weight: expected {expected} for hidden_size {hidden} of config.json, "
                f"found {[rows_out, rows_in]}; {_AGAIN}"
            )


def _check_own_tensors(int8: set[str], by_name: Mapping[str, TensorInfo], kind: Kind) -> None:
    """Zero points, static activation scales and the like would change the result."""
    known = {"weight", "weight_scale", "bias"} | (
        {"weight_offset"} if kind == "modelslim" else set()
    )
    for name, tensor in by_name.items():
        layer, _, part = name.rpartition(".")
        if layer in int8 and part not in known:
            raise ConfigError(
                f"{name}: expected only {', '.join(sorted(known))} for a layer in dynamic INT8, "
                f"found {tensor.dtype} {list(tensor.shape)} of another scheme; {_AGAIN}"
            )
        if kind == "modelslim" and part == "bias" and layer.endswith("norm"):
            raise ConfigError(
                f"{name}: expected norms without bias, found {tensor.dtype} {list(tensor.shape)}; "
                f"quantise without the anti-outlier bias: {_AGAIN}"
            )


def _check_fused(int8: set[str], weights: Mapping[str, TensorInfo]) -> None:
    for layer in weights:
        parent, _, last = layer.rpartition(".")
        for whole, (first, *rest) in FUSED.items():
            if last != first:
                continue
            for other in (f"{parent}.{name}" for name in rest):
                if other in weights and (other in int8) != (layer in int8):
                    raise ConfigError(
                        f"{other}.weight: expected the scheme of {layer}.weight "
                        f"({_scheme(layer in int8)}), with which SGLang joins it to {whole}, found "
                        f"{_scheme(other in int8)}; {_AGAIN}"
                    )


def _blocks(int8: set[str], weights: Mapping[str, TensorInfo]) -> dict[str, bool]:
    """Groups of experts by name, and whether they are INT8; all of a group or none."""
    blocks: dict[str, tuple[bool, str]] = {}
    for layer in sorted(weights):
        block, _, rest = layer.partition(".experts.")
        if not rest or not rest.split(".")[0].isdigit():
            continue
        is_int8 = layer in int8
        first = blocks.setdefault(f"{block}.experts", (is_int8, layer))
        if first[0] != is_int8:
            raise ConfigError(
                f"{layer}.weight: expected the scheme of {first[1]}.weight ({_scheme(first[0])}) "
                f"in all experts of a layer, found {_scheme(is_int8)}; {_AGAIN}"
            )
    return {block: is_int8 for block, (is_int8, _) in blocks.items()}


def _scheme(is_int8: bool) -> str:
    return "INT8" if is_int8 else "float"
