"""A kernel in Triton's interpreter, for what native lowering lacks. Slow; small shapes only.

The interpreter is chosen when `triton` is imported, hence a process of its own. It multiplies the
bit patterns of bfloat16 in `tl.dot` instead of the numbers, so kernels with `tl.dot` are refused
in that type; use float16 or float32. It cuts to bfloat16 instead of rounding.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from sglang_ascend.errors import ConfigError
from sglang_ascend.kernel_proof import tools
from sglang_ascend.kernel_proof.frontend import lower
from sglang_ascend.kernels.launching import Backend, run_by_triton
from sglang_ascend.kernels.spec import KernelConfig, KernelSpec
from sglang_ascend.ops.spec import OperatorError


def interpreter_backend(target: str = "910C") -> Backend:
    """Runs launchers on CPU tensors through Triton's interpreter."""
    return Backend("cpu", target, run_interpreted)


def run_interpreted(
    spec: KernelSpec, config: KernelConfig, grid: tuple[int, ...], arguments: tuple[Any, ...]
) -> None:
    """Run a kernel of the registry in a process of its own, writing into the tensors."""
    if config.dtype == "bf16" and "tt.dot" in lower(spec, config).ttir:
        raise OperatorError(
            f"{spec.name}/{config.name}: Triton's interpreter computes tl.dot of bfloat16 wrongly;"
            " use a configuration of fp16 or fp32"
        )
    with tempfile.TemporaryDirectory() as folder:
        call, result = Path(folder, "call.pt"), Path(folder, "result.pt")
        torch.save((spec.name, config.name, grid, list(arguments)), call)
        done = tools.run(
            [sys.executable, "-m", __name__, str(call), str(result)],
            env=os.environ | {"TRITON_INTERPRET": "1"},
        )
        if done.returncode:
            raise ConfigError(f"{spec.name} failed in the interpreter: {done.stderr[-1500:]}")
        for argument, value in zip(arguments, torch.load(result)):
            if isinstance(argument, torch.Tensor):
                argument.copy_(value)


def _main(call: str, result: str) -> None:
    from sglang_ascend.kernels.registry import load_all

    name, config_name, grid, arguments = torch.load(call)
    spec = load_all()[name]
    run_by_triton(spec, spec.config(config_name), grid, arguments)
    torch.save(arguments, result)


if __name__ == "__main__":
    _main(*sys.argv[1:])
