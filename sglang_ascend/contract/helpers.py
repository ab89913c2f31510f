"""Contract of what calls torch_npu and is no operator of `ops/`, and of what has no shape function.

torch_npu 2.13.0 has shape functions for 261 of its 462 operators. Where one that we call lacks it,
its result's shape is written here from its documentation; its schema is still torch_npu's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from sglang_ascend.contract import outcome
from sglang_ascend.contract.observer import CallObserver
from sglang_ascend.ops import npu_format
from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3


def _npu_format_cast(weight, acl_format, customize_dtype=None, input_dtype=None):
    """Another layout in memory, the same logical tensor."""
    return torch.empty_like(weight)


#: Operators without a shape function, by name.
SHAPES: dict[str, Callable[..., Any]] = {"npu_format_cast": _npu_format_cast}
_libraries: list[torch.library.Library] = []


def define_missing_shapes() -> None:
    """Give torch_npu's operators without a shape function the ones from here."""
    for name, function in SHAPES.items():
        library = torch.library.Library("npu", "IMPL")
        library.impl(name, function, "Meta")
        _libraries.append(library)


def run(mode, device: torch.device) -> list[dict[str, Any]]:
    """Call each helper; `run_case`'s results, with the shapes that are expected."""
    with mode, torch.no_grad():
        weight = torch.empty(
            DEEPSEEK_V3.hidden, DEEPSEEK_V3.q_lora, dtype=torch.bfloat16, device=device
        )
        given = {"weight": weight}
        observer = CallObserver(given)
        with observer:
            result = npu_format.to_fractal_nz(weight)
        return [
            {
                "operator": "npu_format.to_fractal_nz",
                "label": "DeepSeek-V3 query down-projection",
                "outputs": outcome.describe((result,), given),
                "expected": outcome.describe((torch.empty_like(weight),), given),
                "calls": observer.calls,
                "problems": observer.problems,
            }
        ]
