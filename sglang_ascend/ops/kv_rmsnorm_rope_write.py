"""Tail of the MLA key/value projection: normalise the latent, rotate the key, write both."""

import torch

from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3, TINY_DEEPSEEK, MlaModel
from sglang_ascend.ops.paged import check_slots, write_rows
from sglang_ascend.ops.rms_norm import normalise
from sglang_ascend.ops.rope import gather_cos_sin, rotate
from sglang_ascend.ops.spec import (
    FLOATS,
    HALVES,
    INTS,
    ContractCase,
    NpuLimit,
    Operator,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)

_DOC = "npu_kv_rmsnorm_rope_cache"

SPEC = OperatorSpec(
    name="kv_rmsnorm_rope_write",
    summary=(
        "latent_cache[slot] = rms_norm(kv latent); rope_cache[slot] = rope(kv rest), in halves."
    ),
    source="torch_npu npu_kv_rmsnorm_rope_cache, cache_mode PA",
    inputs={
        "kv": TensorSpec(("tokens", "kv_lora+rotary"), FLOATS),
        "weight": TensorSpec(("kv_lora",), like="kv"),
        "cos_sin": TensorSpec(("max_positions", "rotary"), FLOATS),
        "positions": TensorSpec(("tokens",), INTS),
        "latent_cache": TensorSpec(("blocks", "page", 1, "kv_lora"), like="kv"),
        "rope_cache": TensorSpec(("blocks", "page", 1, "rotary"), like="kv"),
        "slots": TensorSpec(("tokens",), INTS),
    },
    outputs={},
    mutates=("latent_cache", "rope_cache"),
    npu_operators=("npu::npu_kv_rmsnorm_rope_cache",),
    npu_limits={
        "dtype": NpuLimit(_DOC, allowed=HALVES),
        "kv_lora": NpuLimit(_DOC, allowed=(512,)),
        "rotary_dim": NpuLimit(_DOC, allowed=(64,)),
    },
    tolerance=Tolerance(
        "float32 sums in another order; one rounding of the result; the NPU has 16-bit tables",
        float32=1e-6,
        bfloat16=2**-6,
        float16=2**-9,
    ),
    values=lambda arguments: check_slots(
        "kv_rmsnorm_rope_write", arguments["slots"], arguments["latent_cache"]
    ),
)


def reference(
    kv: torch.Tensor,
    weight: torch.Tensor,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    latent_cache: torch.Tensor,
    rope_cache: torch.Tensor,
    slots: torch.Tensor,
    eps: float,
) -> None:
    """Split kv [tokens, kv_lora + rotary] and write it in place.

    weight [kv_lora]: of the RMSNorm. cos_sin [max_positions, rotary], positions [tokens].
    latent_cache [blocks, page, 1, kv_lora], rope_cache [blocks, page, 1, rotary]. slots [tokens]:
    block * page + offset; -1 is skipped. The rotary part comes in interleaved pairs and is written
    in halves, so the queries of this cache need `rope(..., interleaved=True, split_halves=True)`.
    """
    latent, key = kv.split((weight.shape[0], cos_sin.shape[1]), dim=-1)
    cos, sin = gather_cos_sin(cos_sin, positions)
    rotated = rotate(key.unsqueeze(1), cos, sin, interleaved=True, split_halves=True)
    write_rows(latent_cache, slots, normalise(latent, weight, eps, kv.dtype).unsqueeze(1))
    write_rows(rope_cache, slots, rotated)


def check_npu_limits(dtype: torch.dtype, kv_lora: int, rotary: int) -> None:
    SPEC.require_npu("dtype", dtype)
    SPEC.require_npu("kv_lora", kv_lora)
    SPEC.require_npu("rotary_dim", rotary)


def npu(kv, weight, cos_sin, positions, latent_cache, rope_cache, slots, eps) -> None:
    check_npu_limits(kv.dtype, weight.shape[0], cos_sin.shape[1])
    SPEC.require_contiguous(latent_cache=latent_cache, rope_cache=rope_cache)
    tables = cos_sin.index_select(0, positions).to(kv.dtype).chunk(2, dim=-1)
    cos, sin = (torch.cat((table, table), dim=-1)[:, None, None] for table in tables)
    torch.ops.npu.npu_kv_rmsnorm_rope_cache(
        kv[:, None, None].contiguous(),
        weight,
        cos,
        sin,
        slots.long(),
        rope_cache,
        latent_cache,
        epsilon=eps,
        cache_mode="PA",
    )


def _case(label: str, model: MlaModel, tokens: int) -> ContractCase:
    def build(device, dtype):
        def tensor(*shape, dtype=dtype):
            return torch.zeros(*shape, dtype=dtype, device=device)

        return {
            "kv": tensor(tokens, model.kv_lora + model.rope),
            "weight": tensor(model.kv_lora),
            "cos_sin": tensor(4096, model.rope),
            "positions": tensor(tokens, dtype=torch.int64),
            "latent_cache": tensor(64, 128, 1, model.kv_lora),
            "rope_cache": tensor(64, 128, 1, model.rope),
            "slots": tensor(tokens, dtype=torch.int64),
            "eps": 1e-6,
        }

    return ContractCase(label, build)


CONTRACT = (
    _case("tiny-deepseek-v3 prefill", TINY_DEEPSEEK, 256),
    _case("DeepSeek-V3 decode", DEEPSEEK_V3, 64),
)

kv_rmsnorm_rope_write = Operator(SPEC, reference, npu, CONTRACT)
