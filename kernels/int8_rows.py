"""Per-token symmetric INT8 quantisation of a row in unified buffer, for the kernels that end in it.

The rule is that of `ops/dynamic_quant.py`; this is its one implementation on the device. It works
on one row and not on a tile of rows: a cast of a two-dimensional tile to int8 goes through
transposed copies that fill unified buffer at a seventh of the width.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_ALL = tl.constexpr(tl.PropagateNan.ALL)


@triton.jit
def quantise(y):
    """y [columns] float32 -> (integers [columns] int8, scale float32).

    Columns that do not belong to the row hold 0.
    """
    # The chip's maximum may pass over NaN; a product with zero never does, nor over an infinity.
    scale = tl.max(tl.abs(y), 0) / 127.0 + tl.sum(y * 0.0, 0)
    ratio = y / tl.where(scale == 0.0, 1.0, scale)
    ratio = tl.minimum(tl.maximum(ratio, -127.0, propagate_nan=_ALL), 127.0, propagate_nan=_ALL)
    # Half to even: float32 has no fraction bits left at 1.5 * 2**23.
    whole = (ratio + 12582912.0) - 12582912.0
    return whole.to(tl.int8), scale


def new_int8_rows(
    rows: int, hidden: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Room for quantised rows [rows, hidden] int8 and their scales [rows] float32."""
    q = torch.empty(rows, hidden, dtype=torch.int8, device=device)
    return q, torch.empty(rows, dtype=torch.float32, device=device)
