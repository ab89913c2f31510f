"""RMSNorm of rows, with or without a residual, ending in per-token INT8.

A row stays in unified buffer from its one read to its one write: no 16-bit copy of the normalised
row exists. References: `ops/rms_norm_quant.py`, `ops/add_rms_norm_quant.py`.
"""

from __future__ import annotations

import torch
import triton
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
from sglang_ascend.ops import add_rms_norm_quant as add_operator
from sglang_ascend.ops import rms_norm_quant as operator
from sglang_ascend.ops.spec import NpuLimit

_SHAPES = shapes_only(operator.SPEC)
_ADD_SHAPES = shapes_only(add_operator.SPEC)
_FEATURES = {
    "dtype": BFLOAT16,
    "hidden": NpuLimit(HERE, maximum=8192),
    "element_stride": DENSE,
}


@triton.jit
def _normalise(x, weight, hidden, eps):
    """x [columns] float32, zero behind `hidden`; weight [columns] float32 -> like x."""
    return x * (1.0 / tl.sqrt(tl.sum(x * x, 0) / hidden + eps)) * weight


@ascend_kernel
def rms_norm_quant(
    x_ptr,  # [rows, hidden] T, rows x_stride elements apart
    weight_ptr,  # [hidden] T
    q_ptr,  # [rows, hidden] int8, output
    scale_ptr,  # [rows] float32, output
    rows,
    hidden,
    x_stride,
    eps,
    COLS: tl.constexpr,
):
    col = tl.arange(0, COLS)
    inside = col < hidden
    weight = tl.load(weight_ptr + col, mask=inside, other=0.0).to(tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row.to(tl.int64) * x_stride + col, mask=inside, other=0.0)
        q, scale = quantise(_normalise(x.to(tl.float32), weight, hidden, eps))
        tl.store(q_ptr + row.to(tl.int64) * hidden + col, q, mask=inside)
        tl.store(scale_ptr + row, scale)


@ascend_kernel
def add_rms_norm_quant(
    x_ptr,  # [rows, hidden] T, rows x_stride elements apart
    residual_ptr,  # [rows, hidden] T, rows residual_stride elements apart
    weight_ptr,  # [hidden] T
    q_ptr,  # [rows, hidden] int8, output
    scale_ptr,  # [rows] float32, output
    total_ptr,  # [rows, hidden] T, output: x + residual
    rows,
    hidden,
    x_stride,
    residual_stride,
    eps,
    COLS: tl.constexpr,
):
    col = tl.arange(0, COLS)
    inside = col < hidden
    weight = tl.load(weight_ptr + col, mask=inside, other=0.0).to(tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row.to(tl.int64) * x_stride + col, mask=inside, other=0.0)
        residual_row = residual_ptr + row.to(tl.int64) * residual_stride
        residual = tl.load(residual_row + col, mask=inside, other=0.0)
        total = x.to(tl.float32) + residual.to(tl.float32)
        dense = row.to(tl.int64) * hidden
        tl.store(total_ptr + dense + col, total.to(total_ptr.dtype.element_ty), mask=inside)
        q, scale = quantise(_normalise(total, weight, hidden, eps))
        tl.store(q_ptr + dense + col, q, mask=inside)
        tl.store(scale_ptr + row, scale)


def rms_norm_quant_launch(
    x: torch.Tensor, weight: torch.Tensor, eps: float, on: Backend | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """x [rows, hidden] bfloat16, rows strided, such as one part of a joint projection; weight
    [hidden] -> (q [rows, hidden] int8, scale [rows] float32).

    Raises `OperatorError` outside `RMS_NORM_QUANT.features`.
    """
    on = on or npu_backend(x)
    _SHAPES.check_inputs({"x": x, "weight": weight})
    rows, hidden = x.shape
    spec = RMS_NORM_QUANT
    for tensor in (x, weight):
        spec.require(on.device, dtype=x.dtype, hidden=hidden, element_stride=tensor.stride(-1))
    q, scale = new_int8_rows(rows, hidden, x.device)
    config = choose_width(spec, on.target, hidden)
    grid = (vector_programs(on.target, rows),)
    on.launch(spec, config, grid, x, weight, q, scale, rows, hidden, x.stride(0), float(eps))
    return q, scale


def add_rms_norm_quant_launch(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    on: Backend | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x, residual [rows, hidden] bfloat16, rows strided; weight [hidden] -> (q [rows, hidden] int8,
    scale [rows] float32, x + residual [rows, hidden] bfloat16).

    Raises `OperatorError` outside `ADD_RMS_NORM_QUANT.features`.
    """
    on = on or npu_backend(x)
    _ADD_SHAPES.check_inputs({"x": x, "residual": residual, "weight": weight})
    rows, hidden = x.shape
    spec = ADD_RMS_NORM_QUANT
    for tensor in (x, residual, weight):
        spec.require(on.device, dtype=x.dtype, hidden=hidden, element_stride=tensor.stride(-1))
    q, scale = new_int8_rows(rows, hidden, x.device)
    total = torch.empty(rows, hidden, dtype=x.dtype, device=x.device)
    on.launch(
        spec,
        choose_width(spec, on.target, hidden),
        (vector_programs(on.target, rows),),
        x,
        residual,
        weight,
        q,
        scale,
        total,
        rows,
        hidden,
        x.stride(0),
        residual.stride(0),
        float(eps),
    )
    return q, scale, total


RMS_NORM_QUANT = KernelSpec(
    name="rms_norm_quant",
    kernel=rms_norm_quant,
    signature={
        "x_ptr": "*T",
        "weight_ptr": "*T",
        "q_ptr": "*i8",
        "scale_ptr": "*fp32",
        "rows": "i32",
        "hidden": "i32",
        "x_stride": "i32",
        "eps": "fp32",
    },
    configs=row_configs((2048, 4096, 7168, 8192)),
    launcher=rms_norm_quant_launch,
    reference="rms_norm_quant",
    features=_FEATURES,
    work=(
        Work("query latents, decode 64 x 1536", 0, 64 * (1536 * 3 + 4) + 1536 * 2),
        Work("query latents, prefill 4096 x 1536", 0, 4096 * (1536 * 3 + 4) + 1536 * 2),
    ),
)
ADD_RMS_NORM_QUANT = KernelSpec(
    name="add_rms_norm_quant",
    kernel=add_rms_norm_quant,
    signature={
        "x_ptr": "*T",
        "residual_ptr": "*T",
        "weight_ptr": "*T",
        "q_ptr": "*i8",
        "scale_ptr": "*fp32",
        "total_ptr": "*T",
        "rows": "i32",
        "hidden": "i32",
        "x_stride": "i32",
        "residual_stride": "i32",
        "eps": "fp32",
    },
    configs=row_configs((2048, 4096, 7168, 8192)),
    launcher=add_rms_norm_quant_launch,
    reference="add_rms_norm_quant",
    features=_FEATURES,
    work=(
        Work("decode 64 x 7168", 0, 64 * (7168 * 7 + 4) + 7168 * 2),
        Work("prefill 4096 x 7168", 0, 4096 * (7168 * 7 + 4) + 7168 * 2),
    ),
)
KERNELS = (RMS_NORM_QUANT, ADD_RMS_NORM_QUANT)
