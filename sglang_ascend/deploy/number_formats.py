"""Number formats: which ones a device serves, and what ``auto`` stands for."""

from __future__ import annotations

from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

from sglang_ascend.deploy import int8_description
from sglang_ascend.deploy.int8_layers import SCHEME
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
#: Values of --quantization.
QUANTIZATION = (SCHEME,)


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


def check_quantization(
    folder: Path, config: dict[str, Any], asked: str | None, dtype: str, device: str
) -> str | None:
    """The scheme that the model is served in; None for float.

    Args:
        folder: the checkpoint. config: its ``config.json``.
        asked: --quantization.
        dtype: in which the model computes, as ``resolve_dtype`` returns it.

    Raises:
        ConfigError: quantised weights that the device has no operators for.
    """
    accepted = ", ".join(QUANTIZATION)
    if asked not in (None, *QUANTIZATION):
        raise ConfigError(
            f"--quantization {asked!r} is not supported on {device} (supported: {accepted}); drop "
            f"it, or give --quantization {SCHEME} with a float checkpoint"
        )
    kind = int8_description.kind_of(folder, config)
    if kind not in ("float", "modelslim", "compressed-tensors"):
        raise ConfigError(
            f"the checkpoint's quantization {kind!r} is not supported on {device} (supported: INT8 "
            "of ModelSlim or compressed-tensors); use a float32, float16 or bfloat16 checkpoint, "
            f"with --quantization {SCHEME} if you like"
        )
    scheme = SCHEME if asked or kind != "float" else None
    if scheme and device == "npu" and BYTES[dtype] != 2:
        raise ConfigError(
            f"--dtype {dtype} does not go with {SCHEME} on npu, whose INT8 operators give bfloat16 "
            "or float16; choose one of these"
        )
    return scheme


def check_weights(
    tensors: Iterable[TensorInfo], device: str, int8: Container[str] = frozenset()
) -> None:
    """Raise ConfigError where weights are stored in a format that loads as wrong numbers.

    int8: the layers that are served from INT8 weights.
    """
    odd: dict[str, list[str]] = {}
    for tensor in tensors:
        if tensor.dtype == "I8" and tensor.name.removesuffix(".weight") in int8:
            continue
        if tensor.dtype not in _WEIGHTS:
            odd.setdefault(tensor.dtype, []).append(tensor.name)
    for dtype, names in odd.items():
        raise ConfigError(
            f"{len(names)} weight(s) are stored as {dtype} (first {names[0]}), which {device} does "
            "not support; use a float32, float16 or bfloat16 checkpoint"
        )
