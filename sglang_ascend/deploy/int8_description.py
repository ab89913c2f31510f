"""What a checkpoint says about its quantisation, in the two forms that are served.

- ModelSlim: ``quant_model_description.json`` maps each tensor's name to its scheme.
- compressed-tensors: ``quantization_config`` in ``config.json``. SGLang's ``w8a8_int8`` stores the
  same tensors and describes nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from sglang_ascend.errors import ConfigError

Kind = Literal["float", "modelslim", "compressed-tensors"]
MODELSLIM_FILE = "quant_model_description.json"
MODELSLIM_INT8 = "W8A8_DYNAMIC"
MODELSLIM_FLOAT = "FLOAT"

_COMPRESSED = ("compressed-tensors", "compressed_tensors")
_ONLY = "ascend_w8a8 serves INT8 weights per output channel with dynamic INT8 activations per token"
_WEIGHTS = {
    "num_bits": (8,),
    "type": ("int",),
    "strategy": ("channel",),
    "symmetric": (True,),
    "group_size": (None, 0, -1),
}
_ACTIVATIONS = {
    "num_bits": (8,),
    "type": ("int",),
    "strategy": ("token",),
    "symmetric": (True,),
    "dynamic": (True,),
    "group_size": (None, 0, -1),
}


def kind_of(folder: Path, config: dict[str, Any]) -> Kind | str:
    """How the checkpoint says it is quantised; any other method by its own name."""
    if (folder / MODELSLIM_FILE).is_file():
        return "modelslim"
    own = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(own, dict):
        return "float"
    return kind_of_method(own) or str(own.get("quant_method"))


def kind_of_method(own: dict[str, Any]) -> Kind | None:
    """The kind that a ``quantization_config`` stands for; None if not one of ours."""
    method = str(own.get("quant_method", "")).lower()
    if method == "modelslim":
        return "modelslim"
    if method == "w8a8_int8" or (method in _COMPRESSED and _bits(own) == {8}):
        return "compressed-tensors"
    return None


def _bits(own: dict[str, Any]) -> set[Any]:
    """Bits of integer weights in all groups; a float type counts as none."""
    groups = own.get("config_groups")
    if not isinstance(groups, dict):
        return set()
    weights = [(group or {}).get("weights") or {} for group in groups.values()]
    return {w.get("num_bits") if w.get("type", "int") == "int" else None for w in weights}


def check_compressed(own: dict[str, Any]) -> None:
    """Raise ConfigError for a ``quantization_config`` of compressed-tensors in another scheme."""
    if str(own.get("quant_method")).lower() not in _COMPRESSED:
        return
    for name, group in (own.get("config_groups") or {}).items():
        for part, rules in (("weights", _WEIGHTS), ("input_activations", _ACTIVATIONS)):
            found = group.get(part)
            place = f"quantization_config.config_groups.{name}.{part}"
            if not isinstance(found, dict):
                raise _unlike(place, f"symmetric INT8 {part}", found)
            for key, accepted in rules.items():
                if found.get(key) not in accepted:
                    raise _unlike(f"{place}.{key}", repr(accepted[0]), found.get(key))
    if own.get("kv_cache_scheme"):
        raise _unlike("quantization_config.kv_cache_scheme", "none", own["kv_cache_scheme"])


def read_modelslim(folder: Path) -> dict[str, str]:
    """Scheme by tensor name.

    Raises:
        ConfigError: an unreadable file, or one made with groups.
    """
    path = folder / MODELSLIM_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        schemes = {name: value for name, value in content.items() if isinstance(value, str)}
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{path} is unreadable ({type(error).__name__}: {error}); download it again"
        ) from error
    if content.get("group_size") not in (None, 0, -1):
        raise _unlike(
            f"{MODELSLIM_FILE} group_size", "0 (one scale a channel)", content["group_size"]
        )
    return schemes


def _unlike(what: str, expected: str, found: object) -> ConfigError:
    return ConfigError(
        f"{what}: expected {expected}, found {found!r}; {_ONLY}: quantise the float checkpoint "
        "with `python -m sglang_ascend.quantize`"
    )
