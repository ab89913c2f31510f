"""Do the weights and the KV pool fit? Arithmetic on the checkpoint's own numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil

from sglang_ascend.deploy.layout import Layout
from sglang_ascend.deploy.safetensors_header import DTYPE_BYTES, TensorInfo
from sglang_ascend.errors import ConfigError

#: SGLang's own share where nothing is given and no accelerator memory is known.
DEFAULT_FRACTION = 0.95
_CGROUP = Path("/sys/fs/cgroup")
_FLOATS = ("F64", "F32", "F16", "BF16")


def available_bytes(cgroup: Path = _CGROUP) -> int:
    """Free main memory in bytes, no more than what the control group still allows."""
    free = psutil.virtual_memory().available
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
    except (OSError, ValueError):  # no control group, or "max": no limit
        return free
    return min(free, max(0, limit - used))


def weight_bytes(
    tensors: Iterable[TensorInfo],
    element_bytes: int,
    quantises: Callable[[str], bool] | None = None,
) -> int:
    """Bytes of all weights once floating-point ones take ``element_bytes`` each.

    quantises: whether a layer becomes INT8 when it is loaded; None where none does.
    """

    def width(tensor: TensorInfo) -> int:
        if tensor.dtype not in _FLOATS:
            return DTYPE_BYTES[tensor.dtype]
        layer = tensor.name.removesuffix(".weight")
        if quantises and layer != tensor.name and quantises(layer):
            return 1
        return element_bytes

    return sum(tensor.elements * width(tensor) for tensor in tensors)


def kv_bytes_per_token(config: dict[str, Any], element_bytes: int, attention_tp: int) -> int | None:
    """Bytes of KV cache a token takes on one rank; None where the configuration does not say.

    MLA keeps one latent of kv_lora_rank + qk_rope_head_dim elements a layer on every rank. GQA
    keeps key and value of the rank's share of the heads, at least one.

    Args:
        config: the language model's part of ``config.json``.
        element_bytes: bytes an element of the cache.
        attention_tp: ranks that share a layer's heads.
    """
    layers = config.get("num_hidden_layers")
    latent, rope = config.get("kv_lora_rank"), config.get("qk_rope_head_dim")
    if not isinstance(layers, int):
        return None
    if latent and rope:
        return layers * (latent + rope) * element_bytes
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    if not heads or not (config.get("head_dim") or hidden):
        return None
    head_dim = config.get("head_dim") or hidden // heads
    kv_heads = math.ceil((config.get("num_key_value_heads") or heads) / attention_tp)
    return layers * 2 * kv_heads * head_dim * element_bytes


def pool_tokens(usable: int, weights: int, per_token: int) -> int:
    """Tokens of KV cache that fit beside the weights; negative where these alone do not fit.

    Args:
        usable: bytes that weights and pool may take together.
        weights: bytes of all weights there, and of whatever else is there before the pool.
        per_token: bytes a token takes there.
    """
    return (usable - weights) // per_token


def check(
    weights: int, per_token: int | None, layout: Layout, args: dict[str, Any], available: int
) -> None:
    """Raise ConfigError unless weights and KV pool of every rank fit into main memory.

    The ranks of the reference device share the memory of the machine. Weights are counted once a
    replica: what attention groups hold twice comes on top, so this refuses only what cannot fit.

    Args:
        weights: bytes of one copy of the model.
        per_token: bytes of KV cache a token takes on one rank, or None to check weights alone.
        layout: ranks of the server.
        args: SGLang's arguments; ``max_total_tokens``, ``page_size`` and ``mem_fraction_static``
            may be None.
        available: free bytes.
    """
    fraction = args.get("mem_fraction_static") or DEFAULT_FRACTION
    usable = int(available * fraction)
    weights *= layout.replicas
    ranks = layout.tp * layout.replicas
    budget = (
        f"{_gib(usable)} of {_gib(available)} free memory can be used (--mem-fraction-static "
        f"{fraction:g})"
    )
    if weights > usable:
        raise ConfigError(
            f"not enough memory: the weights need {_gib(weights)}, {budget}; free memory, choose a "
            "smaller model, or use --dtype bfloat16 for half"
        )
    if per_token is None:
        return
    fits = pool_tokens(usable, weights, per_token * ranks)
    wanted = args.get("max_total_tokens") or args.get("page_size") or 1
    if wanted > fits:
        raise ConfigError(
            f"not enough memory for the KV pool: {wanted} tokens need "
            f"{_gib(wanted * per_token * ranks)} ({per_token / 1024:g} KiB a token on each of "
            f"{ranks} rank(s)) beside {_gib(weights)} of weights, {budget}; lower "
            f"--max-total-tokens to {fits} or less, or free memory"
        )


def _gib(count: int) -> str:
    return f"{count / (1 << 30):.2f} GiB"
