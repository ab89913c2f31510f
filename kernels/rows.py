"""What the kernels that work row by row share: widths, and checks of their arguments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from sglang_ascend.kernels.launching import choose
from sglang_ascend.kernels.spec import KernelConfig, KernelSpec
from sglang_ascend.ops.spec import NpuLimit, OperatorSpec

HERE = "this kernel's configurations"
BFLOAT16 = NpuLimit(HERE, allowed=(torch.bfloat16,))
# Rows may be apart, their elements may not.
DENSE = NpuLimit(HERE, allowed=(1,))


def row_configs(widths: Iterable[int], dtypes: Iterable[str] = ("bf16",)):
    """One configuration for each width that a program holds in unified buffer, and each dtype."""
    return tuple(
        KernelConfig(f"cols{width}_{dtype}", {"COLS": width}, dtype)
        for dtype in dtypes
        for width in widths
    )


def choose_width(spec: KernelSpec, target: str, width: int, dtype: str = "bf16") -> KernelConfig:
    """The narrowest configuration that holds a row of `width` elements."""
    return choose(
        spec,
        target,
        lambda config: config.dtype == dtype and config.constexprs["COLS"] >= width,
        lambda config: config.constexprs["COLS"],
    )


def shapes_only(spec: OperatorSpec) -> OperatorSpec:
    """A specification whose check reads no values, and so does not wait for the device."""
    return replace(spec, values=None)
