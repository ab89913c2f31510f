"""Latent normalised, key rotated, both written into the paged MLA cache.

Reference: `ops/kv_rmsnorm_rope_write.py`. Unlike the fused NPU operator, it reads float32 tables of
the angles, and rows that are one part of a joint down projection.
"""

from __future__ import annotations

import torch
import triton.language as tl

from sglang_ascend.kernels.cores import vector_programs
from sglang_ascend.kernels.launching import Backend, choose, npu_backend
from sglang_ascend.kernels.rows import BFLOAT16, HERE, shapes_only
from sglang_ascend.kernels.spec import KernelConfig, KernelSpec, Work, ascend_kernel
from sglang_ascend.ops import kv_rmsnorm_rope_write as operator
from sglang_ascend.ops.spec import NpuLimit

_SHAPES = shapes_only(operator.SPEC)


@ascend_kernel
def kv_rmsnorm_rope_write(
    kv_ptr,  # [tokens, LATENT + 2 * HALF] T, rows kv_stride elements apart
    weight_ptr,  # [LATENT] T
    cos_sin_ptr,  # [positions, 2 * HALF] float32: cosines, then sines
    positions_ptr,  # [tokens] int64
    latent_cache_ptr,  # [capacity, LATENT] T, output
    rope_cache_ptr,  # [capacity, 2 * HALF] T, output
    slots_ptr,  # [tokens] int64
    tokens,
    capacity,
    kv_stride,
    key_column,  # LATENT, not as a constant: the compiler's de-interleaving allows none but +1
    eps,
    LATENT: tl.constexpr,
    HALF: tl.constexpr,
):
    col = tl.arange(0, LATENT)
    half = tl.arange(0, HALF)
    weight = tl.load(weight_ptr + col).to(tl.float32)
    for token in range(tl.program_id(0), tokens, tl.num_programs(0)):
        slot = tl.load(slots_ptr + token)
        if slot >= 0:
            if slot < capacity:
                row = kv_ptr + token.to(tl.int64) * kv_stride
                latent = tl.load(row + col).to(tl.float32)
                inverse = 1.0 / tl.sqrt(tl.sum(latent * latent, 0) / LATENT + eps)
                latent = (latent * inverse * weight).to(latent_cache_ptr.dtype.element_ty)
                tl.store(latent_cache_ptr + slot * LATENT + col, latent)
                angles = cos_sin_ptr + tl.load(positions_ptr + token) * (2 * HALF)
                cos = tl.load(angles + half)
                sin = tl.load(angles + HALF + half)
                pairs = row + key_column + 2 * half
                even = tl.load(pairs).to(tl.float32)
                odd = tl.load(pairs + 1).to(tl.float32)
                key = rope_cache_ptr + slot * (2 * HALF) + half
                first = even * cos - odd * sin
                second = odd * cos + even * sin
                tl.store(key, first.to(rope_cache_ptr.dtype.element_ty))
                tl.store(key + HALF, second.to(rope_cache_ptr.dtype.element_ty))


def kv_rmsnorm_rope_write_launch(
    kv: torch.Tensor,
    weight: torch.Tensor,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    latent_cache: torch.Tensor,
    rope_cache: torch.Tensor,
    slots: torch.Tensor,
    eps: float,
    on: Backend | None = None,
) -> None:
    """Write kv [tokens, 576] bfloat16, rows strided, in place, as the operator.

    cos_sin [positions, 64] float32; positions and slots [tokens] int64. Slots outside the caches,
    negative ones among them, are skipped. Raises `OperatorError` outside `SPEC.features`.
    """
    on = on or npu_backend(kv)
    _SHAPES.check_inputs(
        {
            "kv": kv,
            "weight": weight,
            "cos_sin": cos_sin,
            "positions": positions,
            "latent_cache": latent_cache,
            "rope_cache": rope_cache,
            "slots": slots,
        }
    )
    dense = (weight, cos_sin, positions, latent_cache, rope_cache, slots)
    latent, rotary = weight.shape[0], cos_sin.shape[1]
    SPEC.require(
        on.device,
        dtype=kv.dtype,
        tables_dtype=cos_sin.dtype,
        index_dtypes=(positions.dtype, slots.dtype),
        kv_lora=latent,
        rotary=rotary,
        contiguous=kv.stride(1) == 1 and all(tensor.is_contiguous() for tensor in dense),
    )
    on.launch(
        SPEC,
        choose(SPEC, on.target),
        (vector_programs(on.target, kv.shape[0]),),
        kv,
        weight,
        cos_sin,
        positions,
        latent_cache,
        rope_cache,
        slots,
        kv.shape[0],
        latent_cache.shape[0] * latent_cache.shape[1],
        kv.stride(0),
        latent,
        float(eps),
    )


SPEC = KernelSpec(
    name="kv_rmsnorm_rope_write",
    kernel=kv_rmsnorm_rope_write,
    signature={
        "kv_ptr": "*T",
        "weight_ptr": "*T",
        "cos_sin_ptr": "*fp32",
        "positions_ptr": "*i64",
        "latent_cache_ptr": "*T",
        "rope_cache_ptr": "*T",
        "slots_ptr": "*i64",
        "tokens": "i32",
        "capacity": "i32",
        "kv_stride": "i32",
        "key_column": "i32",
        "eps": "fp32",
    },
    configs=(KernelConfig("latent512_rotary64", {"LATENT": 512, "HALF": 32}),),
    launcher=kv_rmsnorm_rope_write_launch,
    reference="kv_rmsnorm_rope_write",
    features={
        "dtype": BFLOAT16,
        "tables_dtype": NpuLimit(HERE, allowed=(torch.float32,)),
        "index_dtypes": NpuLimit(HERE, allowed=((torch.int64, torch.int64),)),
        "kv_lora": NpuLimit(HERE, allowed=(512,)),
        "rotary": NpuLimit(HERE, allowed=(64,)),
        "contiguous": NpuLimit(HERE, allowed=(True,)),
    },
    work=(
        Work("decode 64 tokens", 0, 64 * (576 * 4 + 64 * 4 + 16)),
        Work("prefill 4096 tokens", 0, 4096 * (576 * 4 + 64 * 4 + 16)),
    ),
)
KERNELS = (SPEC,)
