"""Cost of an MLA prefill in the latent space and with expanded keys and values; the cheaper choice.

Counts follow from the shapes of arXiv 2405.04434 section 2.1. A multiply-add is two operations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

MlaPrefill = Literal["absorbed", "expanded"]

# 353.9 TFLOPS BF16 over 1.6 TiB/s: constants of Ascend/msmodeling tensor_cast/device.py for 910B.
ASCEND_910B_OPERATIONS_PER_BYTE = 353.9e12 / (1.6 * 2**40)


@dataclass(frozen=True)
class MlaDims:
    """Sizes of one MLA layer on one rank. heads: query heads of this rank."""

    heads: int
    kv_lora: int
    rotary: int
    nope: int
    value: int
    element_bytes: int = 2


@dataclass(frozen=True)
class PrefillCost:
    """Arithmetic operations, and bytes moved to and from device memory, of one layer."""

    operations: int
    bytes: int

    def relative_time(self, operations_per_byte: float) -> float:
        """Roofline time in units of one operation, on a device with this balance."""
        return max(float(self.operations), self.bytes * operations_per_byte)


def absorbed_cost(query_lens: Sequence[int], kv_lens: Sequence[int], dims: MlaDims) -> PrefillCost:
    """Queries are projected into the latent space; all heads read the latents from the cache."""
    tokens, keys = sum(query_lens), _active_keys(query_lens, kv_lens)
    projections = 2 * tokens * dims.heads * dims.kv_lora * (dims.nope + dims.value)
    per_pair = 2 * dims.heads * (2 * dims.kv_lora + dims.rotary)
    queries = tokens * dims.heads * (dims.nope + 3 * dims.kv_lora + 2 * dims.rotary + dims.value)
    latents = keys * (dims.kv_lora + dims.rotary)
    weights = dims.heads * dims.kv_lora * (dims.nope + dims.value)
    return PrefillCost(
        operations=projections + per_pair * _visible_pairs(query_lens, kv_lens),
        bytes=dims.element_bytes * (queries + latents + weights),
    )


def expanded_cost(query_lens: Sequence[int], kv_lens: Sequence[int], dims: MlaDims) -> PrefillCost:
    """Keys and values of every head are computed from the cached latents, prefix included."""
    tokens, keys = sum(query_lens), _active_keys(query_lens, kv_lens)
    expansion = 2 * keys * dims.heads * dims.kv_lora * (dims.nope + dims.value)
    per_pair = 2 * dims.heads * (dims.nope + dims.rotary + dims.value)
    queries = tokens * dims.heads * (dims.nope + dims.rotary + dims.value)
    latents = keys * (dims.kv_lora + dims.rotary)
    expanded = 2 * keys * dims.heads * (dims.nope + dims.rotary + dims.value)
    weights = dims.heads * dims.kv_lora * (dims.nope + dims.value)
    return PrefillCost(
        operations=expansion + per_pair * _visible_pairs(query_lens, kv_lens),
        bytes=dims.element_bytes * (queries + latents + expanded + weights),
    )


def choose_mla_prefill(
    query_lens: Sequence[int],
    kv_lens: Sequence[int],
    dims: MlaDims,
    *,
    operations_per_byte: float = ASCEND_910B_OPERATIONS_PER_BYTE,
    max_absorbed_query_len: int | None = None,
) -> MlaPrefill:
    """The form with the smaller roofline time; "absorbed" on a tie.

    max_absorbed_query_len: longest query that the device's absorbed operator takes, if bounded.
    """
    if max_absorbed_query_len is not None and max(query_lens, default=0) > max_absorbed_query_len:
        return "expanded"
    absorbed = absorbed_cost(query_lens, kv_lens, dims).relative_time(operations_per_byte)
    expanded = expanded_cost(query_lens, kv_lens, dims).relative_time(operations_per_byte)
    return "absorbed" if absorbed <= expanded else "expanded"


def _active_keys(query_lens: Sequence[int], kv_lens: Sequence[int]) -> int:
    return sum(keys for queries, keys in zip(query_lens, kv_lens) if queries)


def _visible_pairs(query_lens: Sequence[int], kv_lens: Sequence[int]) -> int:
    """Causal (query, key) pairs: query i of q sees kv - q + i + 1 keys."""
    return sum(q * kv - q * (q - 1) // 2 for q, kv in zip(query_lens, kv_lens))
