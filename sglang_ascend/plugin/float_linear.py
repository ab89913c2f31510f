"""SGLang's unquantised linear layers on the native float32 kernel.

torch hands few rows to MKL, which reads a weight once per row below about four rows and reaches a
half of the machine's rate at sixteen. Many rows are its strength, so prefill stays with it, except
on a machine with AMX, which MKL does not use for float32.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from sglang_ascend.native import matmul


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x [..., in] @ weight [out, in]^T + bias [out]."""
    if x.numel() <= matmul.most_rows() * x.shape[-1]:
        y = matmul.linear(x, weight, bias)
        if y is not NotImplemented:
            return y
    return F.linear(x, weight, bias)


def apply(self, layer, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """In the place of ``UnquantizedLinearMethod.apply``."""
    return linear(x, layer.weight, bias)
