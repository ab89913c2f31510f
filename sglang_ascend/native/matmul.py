"""Product of float32 rows with weights as checkpoints lay them out, dense and by expert."""

from __future__ import annotations

from functools import cache
from itertools import accumulate

import torch

from sglang_ascend.native.library import call, int64s, kernels

_FLOAT = torch.float32


@cache
def most_rows() -> int:
    """Rows up to which ``linear`` is faster than torch's; 0 without native kernels."""
    lib = kernels()
    return lib.float_matmul_most_rows() if lib else 0


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None):
    """x [..., in] @ weight [out, in]^T + bias [out]; ``NotImplemented`` where not float32."""
    lib = kernels()
    takes = lib is not None and x.dtype == weight.dtype == _FLOAT and x.device.type == "cpu"
    if not takes or weight.stride(1) != 1 or (bias is not None and bias.dtype != _FLOAT):
        return NotImplemented
    rows = x if x.dim() == 2 and x.stride(1) == 1 else x.reshape(-1, x.shape[-1]).contiguous()
    outs, width = weight.shape
    y = rows.new_empty(rows.shape[0], outs)
    call(
        lib.float_matmul,
        *(rows.data_ptr(), weight.data_ptr(), None if bias is None else bias.data_ptr()),
        *(
            int64s([rows.shape[0]]),
            y.data_ptr(),
            1,
            width,
            outs,
            rows.stride(0),
            weight.stride(0),
            0,
        ),
    )
    return y if x.dim() == 2 else y.view(*x.shape[:-1], outs)


def grouped_matmul(x, weights, tokens_per_expert):
    """As the operator ``grouped_matmul``, for weights that are views of [experts, out, in]."""
    lib = kernels()
    takes = lib is not None and x.dtype == weights.dtype == _FLOAT
    if not takes or weights.stride(1) != 1 or x.stride(1) != 1:
        return NotImplemented
    experts, width, outs = weights.shape
    ends = list(accumulate(tokens_per_expert.tolist()))
    y = x.new_empty(x.shape[0], outs)
    y[ends[-1] :] = 0
    call(
        lib.float_matmul,
        *(x.data_ptr(), weights.data_ptr(), None, int64s(ends), y.data_ptr()),
        *(experts, width, outs, x.stride(0), weights.stride(2), weights.stride(0)),
    )
    return y
