"""INT8 weights: one scale for each output channel, symmetric, and the layout that operators take.

Source: the scheme W8A8_DYNAMIC of Huawei's ModelSlim, compressed-tensors' int8 "channel" strategy.
"""

from __future__ import annotations

import torch
from torch.nn import Parameter

from sglang_ascend.errors import ConfigError
from sglang_ascend.native import int8
from sglang_ascend.ops.dynamic_quant import reference as quantise_rows


def quantise_weight(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """weight [out, in] of any float dtype -> (q [out, in] int8, scale [out, 1] float32).

    scale = max|w| / 127 of the channel and q = w / scale to the nearest integer, in -127..127, so
    that |w - q * scale| <= scale / 2 up to a float32 rounding. A channel of zeros has scale 0.

    Raises:
        ConfigError: a weight that is not finite.
    """
    q, scale = quantise_rows(weight)
    if not bool(torch.isfinite(scale).all()):
        raise ConfigError(
            f"a weight {list(weight.shape)} holds NaN or infinity and cannot be quantised; "
            "download the checkpoint again"
        )
    return q, scale.unsqueeze(1)


def dequantise_weight(q: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """q [out, in] int8, scale [out, 1] float -> [out, in] float32."""
    return q.float() * scale.float()


def prepare_weight(weight: Parameter) -> Parameter:
    """Make a loaded weight ready for the operators of its device.

    weight: int8 [in, out], or [experts, in, out]; strides as they come. On a CPU with native
    kernels the values move to a packed form that only the operators read.
    """
    return int8.pack(weight)
