"""INT8 rows of each expert times that expert's INT8 weight, dequantised on the way out.

References: `ops/quant_grouped_matmul.py`, and `ops/quant_matmul.py` as its case of one group. The
cube unit adds the products up as int32, which is exact up to 131,071 of them; the two scales are
applied to the finished tile by the vector cores. A program counts through the experts' tiles and
takes every n-th one, so that the host need not know how many rows came.
"""

from __future__ import annotations

import torch
import triton.language as tl

from sglang_ascend.kernels.cores import cube_programs
from sglang_ascend.kernels.launching import Backend, choose, npu_backend
from sglang_ascend.kernels.rows import BFLOAT16, HERE, shapes_only
from sglang_ascend.kernels.spec import KernelConfig, KernelSpec, Work, ascend_kernel
from sglang_ascend.ops import quant_grouped_matmul as operator
from sglang_ascend.ops import quant_matmul as dense_operator
from sglang_ascend.ops.spec import NpuLimit

_SHAPES = shapes_only(operator.SPEC)


@ascend_kernel
def quant_grouped_matmul(
    x_ptr,  # [rows, k] int8, sorted by expert
    x_scale_ptr,  # [rows] float32
    weights_ptr,  # [experts, k, n] int8, with any strides
    weight_scale_ptr,  # [experts, n] float32
    tokens_per_expert_ptr,  # [experts] int64
    y_ptr,  # [rows, n] T, output
    rows,
    experts,
    k,
    n,
    expert_stride,
    k_stride,
    n_stride,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    me = tl.program_id(0)
    programs = tl.num_programs(0)
    row = tl.arange(0, ROWS)
    col = tl.arange(0, COLS)
    depth = tl.arange(0, DEPTH)
    col_tiles = tl.cdiv(n, COLS)
    start = 0
    turn = 0  # the program whose turn it is
    for expert in range(experts):
        count = tl.load(tokens_per_expert_ptr + expert).to(tl.int32)
        count = tl.maximum(tl.minimum(count, rows - start), 0)
        row_tiles = tl.cdiv(count, ROWS)
        tiles = row_tiles * col_tiles
        weight = weights_ptr + expert.to(tl.int64) * expert_stride
        # Tiles of one weight panel follow each other, so that programs share it in L2.
        for tile in range((me + programs - turn) % programs, tiles, programs):
            first_row = tile % row_tiles * ROWS
            first_col = tile // row_tiles * COLS
            real_row = row < count - first_row
            real_col = col < n - first_col
            tile_row = (start + first_row).to(tl.int64)
            total = tl.zeros((ROWS, COLS), tl.int32)
            for first in range(0, k, DEPTH):
                real_depth = depth < k - first
                a = tl.load(
                    x_ptr + tile_row * k + row[:, None] * k + (first + depth)[None, :],
                    mask=real_row[:, None] & real_depth[None, :],
                    other=0,
                )
                b = tl.load(
                    weight
                    + (first + depth)[:, None] * k_stride
                    + (first_col + col)[None, :] * n_stride,
                    mask=real_depth[:, None] & real_col[None, :],
                    other=0,
                )
                total = tl.dot(a, b, total, out_dtype=tl.int32)
            x_scale = tl.load(x_scale_ptr + tile_row + row, mask=real_row, other=0.0)
            weight_scale = tl.load(
                weight_scale_ptr + expert * n + first_col + col, mask=real_col, other=0.0
            )
            y = total.to(tl.float32) * x_scale[:, None] * weight_scale[None, :]
            tl.store(
                y_ptr + tile_row * n + first_col + row[:, None] * n + col[None, :],
                y.to(y_ptr.dtype.element_ty),
                mask=real_row[:, None] & real_col[None, :],
            )
        turn = (turn + tiles) % programs
        start += count


def quant_grouped_matmul_launch(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    weights: torch.Tensor,
    weight_scale: torch.Tensor,
    tokens_per_expert: torch.Tensor,
    dtype: torch.dtype,
    on: Backend | None = None,
) -> torch.Tensor:
    """x [rows, in] int8, x_scale [rows], weights [experts, in, out] int8 of any strides,
    weight_scale [experts, out], tokens_per_expert [experts] int64 -> y [rows, out] in `dtype`; rows
    behind the sum are not written.

    Raises `OperatorError` outside `SPEC.features`.
    """
    on = on or npu_backend(x)
    tensors = {
        "x": x,
        "x_scale": x_scale,
        "weights": weights,
        "weight_scale": weight_scale,
        "tokens_per_expert": tokens_per_expert,
    }
    _SHAPES.check_inputs(tensors)
    experts, k, n = weights.shape
    rows = x.shape[0]
    dense = all(tensor.is_contiguous() for name, tensor in tensors.items() if name != "weights")
    SPEC.require(on.device, dtype=dtype, depth=k, columns=n, contiguous=dense)
    y = torch.empty(rows, n, dtype=dtype, device=x.device)
    if not rows:
        return y
    # Tiles as tall as the rows of an expert are on average: lower ones read weights again, taller
    # ones compute on rows that are not there.
    average = -(-rows // experts)
    config = choose(
        SPEC,
        on.target,
        prefer=lambda config: (
            max(average - config.constexprs["ROWS"], 0),
            config.constexprs["ROWS"],
        ),
    )
    on.launch(
        SPEC,
        config,
        (cube_programs(on.target),),
        x,
        x_scale,
        weights,
        weight_scale,
        tokens_per_expert,
        y,
        rows,
        experts,
        k,
        n,
        *weights.stride(),
    )
    return y


def quant_matmul_launch(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    dtype: torch.dtype,
    on: Backend | None = None,
) -> torch.Tensor:
    """x [tokens, in] int8, weight [in, out] int8, as `ops/quant_matmul.py`: one group."""
    dense_operator.SPEC.check_inputs(
        {"x": x, "x_scale": x_scale, "weight": weight, "weight_scale": weight_scale}
    )
    tokens = torch.full((1,), x.shape[0], dtype=torch.int64, device=x.device)
    return quant_grouped_matmul_launch(
        x, x_scale, weight.unsqueeze(0), weight_scale.unsqueeze(0), tokens, dtype, on
    )


def _work(label: str, rows: int, experts: int, k: int, n: int) -> Work:
    moved = rows * (k + 4 + 2 * n) + experts * (k * n + 4 * n)
    return Work(label, 2.0 * rows * k * n, moved, "int8")


SPEC = KernelSpec(
    name="quant_grouped_matmul",
    kernel=quant_grouped_matmul,
    signature={
        "x_ptr": "*i8",
        "x_scale_ptr": "*fp32",
        "weights_ptr": "*i8",
        "weight_scale_ptr": "*fp32",
        "tokens_per_expert_ptr": "*i64",
        "y_ptr": "*T",
        "rows": "i32",
        "experts": "i32",
        "k": "i32",
        "n": "i32",
        "expert_stride": "i32",
        "k_stride": "i32",
        "n_stride": "i32",
    },
    configs=tuple(
        KernelConfig(f"{rows}x{cols}x{depth}", {"ROWS": rows, "COLS": cols, "DEPTH": depth})
        for rows, cols, depth in ((16, 256, 256), (32, 256, 256), (64, 128, 256), (128, 128, 256))
    ),
    launcher=quant_grouped_matmul_launch,
    reference="quant_grouped_matmul",
    features={
        "dtype": BFLOAT16,
        "depth": NpuLimit("2**31 / 128**2: an int32 sum of INT8 products is exact", maximum=131071),
        "columns": NpuLimit(HERE, maximum=65536),
        "contiguous": NpuLimit(HERE, allowed=(True,)),
    },
    work=(
        _work("gate and up, decode, EP 32: 512 rows, 8 experts", 512, 8, 7168, 4096),
        _work("down, decode, EP 32: 512 rows, 8 experts", 512, 8, 2048, 7168),
        _work("gate and up, prefill, EP 32: 8192 rows, 8 experts", 8192, 8, 7168, 4096),
    ),
)
KERNELS = (SPEC,)
