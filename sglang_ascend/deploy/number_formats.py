"""Number formats: which ones a device serves, and what ``auto`` stands for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sglang_ascend.deploy.safetensors_header import TensorInfo
from sglang_ascend.errors import ConfigError

#: Bytes an element, by every spelling that --dtype and config.json use.
BYTES = {
    "float32": 4,
    "float": 4,
    "bfloat16": 2,
    "float16": 2,
    "half": 2,
}
_KV_CACHE = ("auto", "bfloat16", "bf16")
_WEIGHTS = ("F32", "F16", "BF16", "F64", "I64", "I32", "BOOL")
#: Values of --quantization and of config.json's quant_method.
QUANTIZATION: tuple[str, ...] = ()


def resolve_dtype(config: dict[str, Any], dtype: str, device: str) -> str:
    """The dtype in which the model computes.

    ``auto`` is float32 on the reference device, which defines the exact answer; on npu it is the
    checkpoint's own, with float16 in place of float32, as SGLang has it.

    Raises:
        ConfigError: a dtype that neither device computes in.
    """
    if dtype == "auto":
        if device == "reference":
            return "float32"
        own = str(config.get("dtype") or config.get("torch_dtype") or "float32")
        dtype = "float16" if own == "float32" else own
        source = "config.json asks for dtype"
    else:
        source = "--dtype"
    if dtype not in BYTES:
        raise ConfigError(
            f"{source} {dtype!r} is not supported on {device}; choose --dtype from auto, "
            f"{', '.join(BYTES)}"
        )
    return dtype


def check_kv_cache_dtype(kv_cache_dtype: str, device: str) -> None:
    """Raise ConfigError for a KV cache format that the attention backend does not read."""
    if kv_cache_dtype not in _KV_CACHE:
        raise ConfigError(
            f"--kv-cache-dtype {kv_cache_dtype!r} is not supported on {device}; choose from "
            f"{', '.join(_KV_CACHE)}"
        )


def check_quantization(config: dict[str, Any], asked: str | None, device: str) -> None:
    """Raise ConfigError for quantised weights that the device has no operators for."""
    own = config.get("quantization_config")
    method = asked or (own.get("quant_method") if isinstance(own, dict) else None)
    if method is None or method in QUANTIZATION:
        return
    source = "--quantization" if asked else "the checkpoint's quantization"
    accepted = ", ".join(QUANTIZATION) or "none"
    raise ConfigError(
        f"{source} {method!r} is not supported on {device} (supported: {accepted}); use a float32, "
        "float16 or bfloat16 checkpoint"
    )


def check_weights(tensors: Iterable[TensorInfo], device: str) -> None:
    """Raise ConfigError where weights are stored in a format that loads as wrong numbers."""
    odd: dict[str, list[str]] = {}
    for tensor in tensors:
        if tensor.dtype not in _WEIGHTS:
            odd.setdefault(tensor.dtype, []).append(tensor.name)
    for dtype, names in odd.items():
        raise ConfigError(
            f"{len(names)} weight(s) are stored as {dtype} (first {names[0]}), which {device} does "
            "not support; use a float32, float16 or bfloat16 checkpoint"
        )
