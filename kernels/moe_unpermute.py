"""Outputs of the experts combined into tokens, with routing weights.

Reference: `ops/moe_unpermute.py`. A token's sum stays in unified buffer in float32; rows that no
index names are not read, so that NaN in them cannot spread.
"""

from __future__ import annotations

import torch
import triton.language as tl

from sglang_ascend.kernels.cores import vector_programs
from sglang_ascend.kernels.launching import Backend, npu_backend
from sglang_ascend.kernels.rows import (
    BFLOAT16,
    HERE,
    choose_width,
    row_configs,
    shapes_only,
)
from sglang_ascend.kernels.spec import KernelSpec, Work, ascend_kernel
from sglang_ascend.ops import moe_unpermute as operator
from sglang_ascend.ops.spec import NpuLimit

_SHAPES = shapes_only(operator.SPEC)


@ascend_kernel
def moe_unpermute(
    expert_out_ptr,  # [rows, hidden] T
    row_index_ptr,  # [tokens * top_k] int32, negative if the choice adds nothing
    weights_ptr,  # [tokens, top_k] float32
    y_ptr,  # [tokens, hidden] T, output
    tokens,
    rows,
    top_k,
    hidden,
    COLS: tl.constexpr,
):
    col = tl.arange(0, COLS)
    inside = col < hidden
    for token in range(tl.program_id(0), tokens, tl.num_programs(0)):
        total = tl.zeros((COLS,), tl.float32)
        for pair in range(token * top_k, token * top_k + top_k):
            row = tl.load(row_index_ptr + pair)
            weight = tl.load(weights_ptr + pair)
            if row >= 0:
                if row < rows:
                    part_ptr = expert_out_ptr + row.to(tl.int64) * hidden
                    part = tl.load(part_ptr + col, mask=inside, other=0.0)
                    total += part.to(tl.float32) * weight
        y = total.to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + token.to(tl.int64) * hidden + col, y, mask=inside)


def moe_unpermute_launch(
    expert_out: torch.Tensor,
    row_index: torch.Tensor,
    weights: torch.Tensor,
    on: Backend | None = None,
) -> torch.Tensor:
    """expert_out [rows, hidden] bfloat16, row_index [tokens * top_k] int32, weights [tokens, top_k]
    float32, all contiguous -> y [tokens, hidden] bfloat16.

    Raises `OperatorError` outside `SPEC.features`.
    """
    on = on or npu_backend(expert_out)
    _SHAPES.check_inputs({"expert_out": expert_out, "row_index": row_index, "weights": weights})
    rows, hidden = expert_out.shape
    tokens, top_k = weights.shape
    for tensor in (expert_out, row_index, weights):
        SPEC.require(
            on.device,
            dtype=expert_out.dtype,
            weights_dtype=weights.dtype,
            hidden=hidden,
            contiguous=tensor.is_contiguous(),
        )
    y = torch.empty(tokens, hidden, dtype=expert_out.dtype, device=expert_out.device)
    config = choose_width(SPEC, on.target, hidden)
    grid = (vector_programs(on.target, tokens),)
    on.launch(SPEC, config, grid, expert_out, row_index, weights, y, tokens, rows, top_k, hidden)
    return y


SPEC = KernelSpec(
    name="moe_unpermute",
    kernel=moe_unpermute,
    signature={
        "expert_out_ptr": "*T",
        "row_index_ptr": "*i32",
        "weights_ptr": "*fp32",
        "y_ptr": "*T",
        "tokens": "i32",
        "rows": "i32",
        "top_k": "i32",
        "hidden": "i32",
    },
    configs=row_configs((2048, 4096, 8192)),
    launcher=moe_unpermute_launch,
    reference="moe_unpermute",
    features={
        "dtype": BFLOAT16,
        "weights_dtype": NpuLimit(HERE, allowed=(torch.float32,)),
        "hidden": NpuLimit(HERE, maximum=8192),
        "contiguous": NpuLimit(HERE, allowed=(True,)),
    },
    work=(
        Work("decode 64 x top 8, 7168", 0, 64 * (9 * 7168 * 2 + 8 * 8)),
        Work("prefill 4096 x top 8, 7168", 0, 4096 * (9 * 7168 * 2 + 8 * 8)),
    ),
)
KERNELS = (SPEC,)
