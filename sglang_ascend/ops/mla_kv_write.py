"""Write latents and rotated keys of new tokens into the paged MLA caches."""

import torch

from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3
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
    name="mla_kv_write",
    summary=(
        "cache[slot // page, slot % page] = row for latents and rotary keys; negative slots are"
        " skipped."
    ),
    source="torch_npu npu_scatter_pa_kv_cache, cache_mode Norm",
    inputs={
        "latent": TensorSpec(("tokens", "kv_lora"), FLOATS),
        "rope": TensorSpec(("tokens", "rotary"), like="latent"),
        "latent_cache": TensorSpec(("blocks", "page", 1, "kv_lora"), like="latent"),
        "rope_cache": TensorSpec(("blocks", "page", 1, "rotary"), like="latent"),
        "slots": TensorSpec(("tokens",), INTS),
    },
    outputs={},
    mutates=("latent_cache", "rope_cache"),
    npu_operators=("npu::npu_scatter_pa_kv_cache",),
    npu_limits={
        "row_bytes": NpuLimit(
            "aclnnScatterPaKvCache: rows are moved in 32-byte blocks", multiple_of=32
        )
    },
    tolerance=Tolerance("a move: exact"),
    values=lambda arguments: check_slots(
        "mla_kv_write", arguments["slots"], arguments["latent_cache"]
    ),
)


def reference(
    latent: torch.Tensor,
    rope: torch.Tensor,
    latent_cache: torch.Tensor,
    rope_cache: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Write latent [tokens, kv_lora] (normalised) and rope [tokens, rotary] (rotated) in place.

    latent_cache [blocks, page, 1, kv_lora] and rope_cache [blocks, page, 1, rotary] may be strided
    views. slots [tokens]: block * page + offset; -1 is skipped.
    """
    write_rows(latent_cache, slots, latent.unsqueeze(1))
    write_rows(rope_cache, slots, rope.unsqueeze(1))


def check_npu_limits(kv_lora: int, rotary: int, element_bytes: int) -> None:
    SPEC.require_npu("row_bytes", kv_lora * element_bytes)
    SPEC.require_npu("row_bytes", rotary * element_bytes)


def npu(latent, rope, latent_cache, rope_cache, slots) -> None:
    check_npu_limits(latent.shape[-1], rope.shape[-1], latent.element_size())
    SPEC.require_contiguous(latent_cache=latent_cache, rope_cache=rope_cache)
    torch.ops.npu.npu_scatter_pa_kv_cache(
        latent.unsqueeze(1).contiguous(),
        rope.unsqueeze(1).contiguous(),
        latent_cache,
        rope_cache,
        slots,
        cache_mode="Norm",
    )


def _case(label: str, tokens: int) -> ContractCase:
    def build(device, dtype):
        def tensor(*shape):
            return torch.empty(*shape, dtype=dtype, device=device)

        return {
            "latent": tensor(tokens, DEEPSEEK_V3.kv_lora),
            "rope": tensor(tokens, DEEPSEEK_V3.rope),
            "latent_cache": tensor(64, 128, 1, DEEPSEEK_V3.kv_lora),
            "rope_cache": tensor(64, 128, 1, DEEPSEEK_V3.rope),
            "slots": torch.zeros(tokens, dtype=torch.int32, device=device),
        }

    return ContractCase(label, build)


CONTRACT = (_case("DeepSeek-V3 decode", 64), _case("DeepSeek-V3 prefill", 4096))

mla_kv_write = Operator(SPEC, reference, npu, CONTRACT)
