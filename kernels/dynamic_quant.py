"""Per-token symmetric INT8 quantisation of rows. Reference: `ops/dynamic_quant.py`."""

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
from sglang_ascend.ops import dynamic_quant as operator
from sglang_ascend.ops.spec import NpuLimit

_SHAPES = shapes_only(operator.SPEC)


@ascend_kernel
def dynamic_quant(
    x_ptr,  # [rows, hidden] T, rows x_stride elements apart
    q_ptr,  # [rows, hidden] int8, output
    scale_ptr,  # [rows] float32, output
    rows,
    hidden,
    x_stride,
    COLS: tl.constexpr,
):
    col = tl.arange(0, COLS)
    inside = col < hidden
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row.to(tl.int64) * x_stride + col, mask=inside, other=0.0)
        q, scale = quantise(x.to(tl.float32))
        tl.store(q_ptr + row.to(tl.int64) * hidden + col, q, mask=inside)
        tl.store(scale_ptr + row, scale)


def dynamic_quant_launch(
    x: torch.Tensor, on: Backend | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """x [rows, hidden] bfloat16, rows strided -> (q [rows, hidden] int8, scale [rows] float32).

    Raises `OperatorError` outside `SPEC.features`.
    """
    on = on or npu_backend(x)
    _SHAPES.check_inputs({"x": x})
    rows, hidden = x.shape
    SPEC.require(on.device, dtype=x.dtype, hidden=hidden, element_stride=x.stride(1))
    q, scale = new_int8_rows(rows, hidden, x.device)
    config = choose_width(SPEC, on.target, hidden)
    grid = (vector_programs(on.target, rows),)
    on.launch(SPEC, config, grid, x, q, scale, rows, hidden, x.stride(0))
    return q, scale


SPEC = KernelSpec(
    name="dynamic_quant",
    kernel=dynamic_quant,
    signature={
        "x_ptr": "*T",
        "q_ptr": "*i8",
        "scale_ptr": "*fp32",
        "rows": "i32",
        "hidden": "i32",
        "x_stride": "i32",
    },
    configs=row_configs((2048, 4096, 7168, 8192)),
    launcher=dynamic_quant_launch,
    reference="dynamic_quant",
    features={
        "dtype": BFLOAT16,
        "hidden": NpuLimit(HERE, maximum=8192),
        "element_stride": DENSE,
    },
    work=(
        Work("decode 64 x 7168", 0, 64 * (7168 * 3 + 4)),
        Work("prefill 4096 x 7168", 0, 4096 * (7168 * 3 + 4)),
    ),
)
KERNELS = (SPEC,)
