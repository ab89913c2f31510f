"""SGLang's unquantised linear layers on the fastest float32 product that there is.

torch hands its products to MKL, which reads a weight once per row below about four rows and reaches
a half of the machine's rate at sixteen. Many rows, those of a prefill, go to oneDNN, which torch
brings too: on an AMD CPU with AVX-512, MKL does without it and has less than half of oneDNN's rate,
and with AVX2 it is no faster. On a machine with AMX, which neither uses for float32, the native
kernel takes them as well.
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
    return many_rows(x, weight, bias)


def many_rows(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """As ``linear``, by the fastest of torch's own products for many rows."""
    if x.dtype == weight.dtype == torch.float32 and torch.backends.mkldnn.is_available():
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return F.linear(x, weight, bias)


def apply(self, layer, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """In the place of ``UnquantizedLinearMethod.apply``."""
    return linear(x, layer.weight, bias)
