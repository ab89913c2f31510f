"""Where a kernel runs, and which of its configurations may: those that passed the HIVM check."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from sglang_ascend.kernels.spec import KernelConfig, KernelSpec
from sglang_ascend.kernels.versions import TORCH_NPU, TRITON, require_installed
from sglang_ascend.ops.spec import OperatorError

MEMORY_TABLE = Path(__file__).with_name("memory_table.json")
_CHIPS = {"Ascend910B": "910B", "Ascend910_93": "910C"}

Run = Callable[[KernelSpec, KernelConfig, tuple[int, ...], tuple[Any, ...]], None]


@dataclass(frozen=True)
class Backend:
    """A place to run kernels.

    device: torch device type of the tensors. target: "910B" or "910C", whose configurations are
    taken. run: called with spec, configuration, grid and the runtime arguments in order.
    """

    device: str
    target: str
    run: Run

    def launch(
        self, spec: KernelSpec, config: KernelConfig, grid: tuple[int, ...], *arguments: Any
    ) -> None:
        """Run a kernel; `grid` has one to three sizes, a size of 0 means that there is no work."""
        for argument in arguments:
            if isinstance(argument, torch.Tensor) and argument.device.type != self.device:
                raise OperatorError(
                    f"{spec.name}: required all tensors on {self.device}; supported {self.device};"
                    f" missing it for a tensor on {argument.device}; device {self.device}"
                    f" ({self.target})"
                )
        if all(grid):
            self.run(spec, config, grid, arguments)


def npu_backend(tensor: torch.Tensor) -> Backend:
    """The backend of the NPU that holds `tensor`.

    Raises `OperatorError` for another device or chip, `ConfigError` for other versions of
    triton-ascend or torch_npu than those that the kernels were checked with.
    """
    if tensor.device.type != "npu":
        raise OperatorError(
            "Triton-Ascend kernels: required a tensor on npu; supported devices npu (Ascend 910B,"
            f" 910C); missing npu; device {tensor.device}"
        )
    _check_versions()
    return Backend("npu", chip_of(torch.npu.get_device_name(tensor.device)), run_by_triton)


def chip_of(device_name: str) -> str:
    """ "Ascend910B3" -> "910B", "Ascend910_9392" -> "910C"."""
    for prefix, chip in _CHIPS.items():
        if device_name.startswith(prefix):
            return chip
    raise OperatorError(
        f"Triton-Ascend kernels: required a checked chip; supported {', '.join(_CHIPS.values())};"
        f" missing {device_name}; device {device_name}"
    )


def choose(
    spec: KernelSpec,
    target: str,
    suits: Callable[[KernelConfig], bool] = lambda config: True,
    prefer: Callable[[KernelConfig], Any] | None = None,
) -> KernelConfig:
    """The configuration to launch, among those that passed the HIVM check for `target`.

    suits: whether a configuration can compute the call at hand. prefer: the one with the smallest
    key wins; without it, the first in the order of `spec.configs`.
    """
    fitting = [config for config in spec.configs if target in config.targets and suits(config)]
    passed = [config for config in fitting if memory_row(spec, config, target) is not None]
    if not passed:
        names = ", ".join(config.name for config in fitting) or "none"
        raise OperatorError(
            f"{spec.name}: no configuration for this call passed the HIVM check on {target}"
            f" (candidates: {names}); run `python -m sglang_ascend.kernel_check --write`"
        )
    return passed[0] if prefer is None else min(passed, key=prefer)


def row_name(spec: KernelSpec, config: KernelConfig, target: str) -> str:
    """The key of the memory table for a kernel, configuration and chip."""
    return f"{spec.name}/{config.name}/{target}"


def memory_row(spec: KernelSpec, config: KernelConfig, target: str) -> dict[str, Any] | None:
    """The row of the committed memory table if the configuration passed there, else None."""
    return _table().get(row_name(spec, config, target))


@cache
def _table() -> dict[str, dict[str, Any]]:
    if not MEMORY_TABLE.exists():
        return {}
    return json.loads(MEMORY_TABLE.read_text())["rows"]


def run_by_triton(
    spec: KernelSpec, config: KernelConfig, grid: tuple[int, ...], arguments: tuple[Any, ...]
) -> None:
    """Run a kernel through Triton's own launcher."""
    spec.kernel[grid](*arguments, **config.constexprs, **config.options)


@cache
def _check_versions() -> None:
    for pin in (TRITON, TORCH_NPU):
        require_installed(pin)
