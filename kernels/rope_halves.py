"""Rotary parts of the queries, from interleaved pairs into halves. Reference: `ops/rope.py`.

The operator's `interleaved=True, split_halves=True`, for the queries alone: the key of MLA is
rotated where it is written, by `kv_rmsnorm_rope_write`.
"""

from __future__ import annotations

import torch
import triton.language as tl

from sglang_ascend.kernels.cores import vector_programs
from sglang_ascend.kernels.launching import Backend, choose, npu_backend
from sglang_ascend.kernels.rows import BFLOAT16, HERE
from sglang_ascend.kernels.spec import KernelConfig, KernelSpec, Work, ascend_kernel
from sglang_ascend.ops.spec import NpuLimit, OperatorError


@ascend_kernel
def rope_halves(
    query_ptr,  # [tokens, heads, 2 * HALF] T, strided
    cos_sin_ptr,  # [positions, 2 * HALF] float32: cosines, then sines
    positions_ptr,  # [tokens] int64
    out_ptr,  # [tokens, heads, 2 * HALF] T, output
    tokens,
    heads,
    token_stride,
    head_stride,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
):
    head = tl.arange(0, HEADS)[:, None]
    half = tl.arange(0, HALF)
    for token in range(tl.program_id(0), tokens, tl.num_programs(0)):
        angles = cos_sin_ptr + tl.load(positions_ptr + token) * (2 * HALF)
        cos = tl.load(angles + half)[None, :]
        sin = tl.load(angles + HALF + half)[None, :]
        for first in range(0, heads, HEADS):
            inside = head < heads - first
            rows = query_ptr + token.to(tl.int64) * token_stride + (first + head) * head_stride
            pairs = rows + 2 * half[None, :]
            even = tl.load(pairs, mask=inside, other=0.0).to(tl.float32)
            odd = tl.load(pairs + 1, mask=inside, other=0.0).to(tl.float32)
            out = out_ptr + (token.to(tl.int64) * heads + first) * (2 * HALF)
            out += head * (2 * HALF) + half[None, :]
            tl.store(out, (even * cos - odd * sin).to(out_ptr.dtype.element_ty), mask=inside)
            tl.store(out + HALF, (odd * cos + even * sin).to(out_ptr.dtype.element_ty), mask=inside)


def rope_halves_launch(
    query: torch.Tensor, cos_sin: torch.Tensor, positions: torch.Tensor, on: Backend | None = None
) -> torch.Tensor:
    """query [tokens, heads, 64] bfloat16, tokens and heads strided; cos_sin [positions, 64]
    float32; positions [tokens] int64 -> rotated [tokens, heads, 64], contiguous.

    Raises `OperatorError` outside `SPEC.features`.
    """
    on = on or npu_backend(query)
    tokens, heads, rotary = query.shape
    if cos_sin.dim() != 2 or cos_sin.shape[1] != rotary or positions.shape != (tokens,):
        raise OperatorError(
            f"{SPEC.name}: cos_sin must be [positions, {rotary}] and positions [{tokens}], got"
            f" {list(cos_sin.shape)} and {list(positions.shape)}"
        )
    SPEC.require(
        on.device,
        dtype=query.dtype,
        tables_dtype=cos_sin.dtype,
        positions_dtype=positions.dtype,
        rotary=rotary,
        contiguous=(query.stride(2) == 1 and cos_sin.is_contiguous() and positions.is_contiguous()),
    )
    out = torch.empty(tokens, heads, rotary, dtype=query.dtype, device=query.device)
    config = choose(
        SPEC,
        on.target,
        prefer=lambda config: (
            max(heads - config.constexprs["HEADS"], 0),
            config.constexprs["HEADS"],
        ),
    )
    on.launch(
        SPEC,
        config,
        (vector_programs(on.target, tokens),),
        query,
        cos_sin,
        positions,
        out,
        tokens,
        heads,
        *query.stride()[:2],
    )
    return out


SPEC = KernelSpec(
    name="rope_halves",
    kernel=rope_halves,
    signature={
        "query_ptr": "*T",
        "cos_sin_ptr": "*fp32",
        "positions_ptr": "*i64",
        "out_ptr": "*T",
        "tokens": "i32",
        "heads": "i32",
        "token_stride": "i32",
        "head_stride": "i32",
    },
    configs=tuple(
        KernelConfig(f"heads{heads}_rotary64", {"HEADS": heads, "HALF": 32})
        for heads in (16, 64, 128)
    ),
    launcher=rope_halves_launch,
    reference="rope",
    features={
        "dtype": BFLOAT16,
        "tables_dtype": NpuLimit(HERE, allowed=(torch.float32,)),
        "positions_dtype": NpuLimit(HERE, allowed=(torch.int64,)),
        "rotary": NpuLimit(HERE, allowed=(64,)),
        "contiguous": NpuLimit(HERE, allowed=(True,)),
    },
    work=(Work("decode 64 x 128 heads", 0, 64 * (128 * 64 * 4 + 64 * 4 + 8)),),
)
KERNELS = (SPEC,)
