"""Write keys and values of new tokens into the paged cache."""

import torch

from sglang_ascend.ops.contract_shapes import SMOLLM2_135M
from sglang_ascend.ops.paged import check_slots, write_rows
from sglang_ascend.ops.spec import (
    FLOATS,
    INTS,
    ContractCase,
    NpuLimit,
    Operator,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)

SPEC = OperatorSpec(
    name="kv_write",
    summary=(
        "cache[slot // page, slot % page] = row for keys and values; negative slots are skipped."
    ),
    source="torch_npu npu_scatter_pa_kv_cache, cache_mode Norm",
    inputs={
        "key": TensorSpec(("tokens", "kv_heads", "key_dim"), FLOATS),
        "value": TensorSpec(("tokens", "kv_heads", "value_dim"), like="key"),
        "key_cache": TensorSpec(("blocks", "page", "kv_heads", "key_dim"), like="key"),
        "value_cache": TensorSpec(("blocks", "page", "kv_heads", "value_dim"), like="key"),
        "slots": TensorSpec(("tokens",), INTS),
    },
    outputs={},
    mutates=("key_cache", "value_cache"),
    npu_operators=("npu::npu_scatter_pa_kv_cache",),
    npu_limits={
        "row_bytes": NpuLimit(
            "aclnnScatterPaKvCache: rows are moved in 32-byte blocks", multiple_of=32
        )
    },
    tolerance=Tolerance("a move: exact"),
    values=lambda arguments: check_slots("kv_write", arguments["slots"], arguments["key_cache"]),
)


def reference(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Write key [tokens, kv_heads, key_dim] and value [tokens, kv_heads, value_dim] in place.

    key_cache [blocks, page, kv_heads, key_dim] and value_cache may be strided views. slots
    [tokens]: block * page + offset; padding tokens carry -1 (skipped) or a slot of a block that
    nobody reads. Of several tokens with one slot, any one may win.
    """
    write_rows(key_cache, slots, key)
    write_rows(value_cache, slots, value)


def check_npu_limits(key_dim: int, value_dim: int, element_bytes: int) -> None:
    SPEC.require_npu("row_bytes", key_dim * element_bytes)
    SPEC.require_npu("row_bytes", value_dim * element_bytes)


def npu(key, value, key_cache, value_cache, slots) -> None:
    check_npu_limits(key.shape[-1], value.shape[-1], key.element_size())
    SPEC.require_contiguous(key_cache=key_cache, value_cache=value_cache)
    torch.ops.npu.npu_scatter_pa_kv_cache(
        key.contiguous(), value.contiguous(), key_cache, value_cache, slots, cache_mode="Norm"
    )


def _case(label: str, tokens: int) -> ContractCase:
    def build(device, dtype):
        def tensor(*shape):
            heads, dim = SMOLLM2_135M.kv_heads, SMOLLM2_135M.head_dim
            return torch.empty(*shape, heads, dim, dtype=dtype, device=device)

        return {
            "key": tensor(tokens),
            "value": tensor(tokens),
            "key_cache": tensor(64, 128),
            "value_cache": tensor(64, 128),
            "slots": torch.zeros(tokens, dtype=torch.int32, device=device),
        }

    return ContractCase(label, build)


CONTRACT = (_case("SmolLM2-135M decode", 8), _case("SmolLM2-135M prefill", 2048))

kv_write = Operator(SPEC, reference, npu, CONTRACT)
