"""SwiGLU of the rows of experts, ending in per-token INT8. Reference: `ops/swiglu_quant.py`.

Buffers of experts have room for the most rows that can come; only the rows that came are touched,
and how many did is read on the device.
"""

from __future__ import annotations

import torch
import triton.language as tl

from sglang_ascend.kernels.cores import vector_programs
from sglang_ascend.kernels.int8_rows import new_int8_rows, quantise
from sglang_ascend.kernels.launching import Backend, npu_backend
from sglang_ascend.kernels.rows import (
    BFLOAT16,
    DENSE,
    HERE,
    choose_width,
    row_configs,
    shapes_only,
)
from sglang_ascend.kernels.spec import KernelSpec, Work, ascend_kernel
from sglang_ascend.ops import swiglu_quant as operator
from sglang_ascend.ops.spec import NpuLimit

_SHAPES = shapes_only(operator.SPEC)


@ascend_kernel
def swiglu_quant(
    x_ptr,  # [rows, 2 * inter] T: gate, then up; rows x_stride elements apart
    tokens_per_expert_ptr,  # [experts] int64
    q_ptr,  # [rows, inter] int8, output
    scale_ptr,  # [rows] float32, output
    rows,
    experts,
    inter,
    x_stride,
    COLS: tl.constexpr,
):
    used = 0
    for expert in range(experts):
        used += tl.load(tokens_per_expert_ptr + expert).to(tl.int32)
    used = tl.minimum(used, rows)
    col = tl.arange(0, COLS)
    inside = col < inter
    for row in range(tl.program_id(0), used, tl.num_programs(0)):
        x_row = x_ptr + row.to(tl.int64) * x_stride
        gate = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(x_row + inter + col, mask=inside, other=0.0).to(tl.float32)
        q, scale = quantise(gate / (1.0 + tl.exp(-gate)) * up)
        tl.store(q_ptr + row.to(tl.int64) * inter + col, q, mask=inside)
        tl.store(scale_ptr + row, scale)


def swiglu_quant_launch(
    x: torch.Tensor, tokens_per_expert: torch.Tensor, on: Backend | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """x [rows, 2*inter] bfloat16 sorted by expert, rows strided; tokens_per_expert [experts] int64
    -> (q [rows, inter] int8, scale [rows] float32), whose rows behind the sum are not written.

    Raises `OperatorError` outside `SPEC.features`.
    """
    on = on or npu_backend(x)
    _SHAPES.check_inputs({"x": x, "tokens_per_expert": tokens_per_expert})
    rows, width = x.shape
    inter = width // 2
    for stride in (x.stride(1), tokens_per_expert.stride(0)):
        SPEC.require(on.device, dtype=x.dtype, width=width, inter=inter, element_stride=stride)
    q, scale = new_int8_rows(rows, inter, x.device)
    on.launch(
        SPEC,
        choose_width(SPEC, on.target, inter),
        (vector_programs(on.target, rows),),
        x,
        tokens_per_expert,
        q,
        scale,
        rows,
        tokens_per_expert.shape[0],
        inter,
        x.stride(0),
    )
    return q, scale


SPEC = KernelSpec(
    name="swiglu_quant",
    kernel=swiglu_quant,
    signature={
        "x_ptr": "*T",
        "tokens_per_expert_ptr": "*i64",
        "q_ptr": "*i8",
        "scale_ptr": "*fp32",
        "rows": "i32",
        "experts": "i32",
        "inter": "i32",
        "x_stride": "i32",
    },
    configs=row_configs((512, 2048, 4096)),
    launcher=swiglu_quant_launch,
    reference="swiglu_quant",
    features={
        "dtype": BFLOAT16,
        "width": NpuLimit(HERE, multiple_of=2),
        "inter": NpuLimit(HERE, maximum=4096),
        "element_stride": DENSE,
    },
    work=(
        Work("decode, EP 32: 512 rows, inter 2048", 0, 512 * (2048 * 5 + 4)),
        Work("prefill, EP 32: 8192 rows, inter 2048", 0, 8192 * (2048 * 5 + 4)),
    ),
)
KERNELS = (SPEC,)
