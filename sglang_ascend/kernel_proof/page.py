"""`docs/kernels.md`: the memory table and the rooflines of all kernels."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sglang_ascend.comm.hardware import load_hardware
from sglang_ascend.kernel_proof.memory_table import printed
from sglang_ascend.kernel_proof.roofline import CHIPS, CONSTANTS, predict
from sglang_ascend.kernels.spec import KernelSpec, Work

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kernels.md"

_HEAD = """# Triton-Ascend kernels

Written by `python -m sglang_ascend.kernel_check --write`; do not edit. `kernels/README.md` tells
how the kernels are made and checked.

## Rooflines at DeepSeek-V3 shapes

All times are **predictions**. Time = max(operations / cube rate, bytes / memory rate) + a fixed
cost; bytes count each operand once, however often its tiles are read; the arithmetic of the vector
cores is left out, since no rate of theirs is published. Intensity = operations / bytes. The
grouped-query kernels, of which DeepSeek-V3 has no use, are at 64 query heads over 8 key heads.

"""
_TABLE = (
    "| kernel | shape | GFLOP | MB | FLOP/B | 910B \u00b5s | bound | 910C \u00b5s | bound |\n"
    "|---|---|---|---|---|---|---|---|---|\n"
)
_MEMORY = """
## On-chip memory

Planned by the compiler at HIVM level for one core (UB: a vector core; L1, L0C: a cube core).
HIVM-checked is not "runs on Ascend": the last stage needs CANN, and no kernel ran on a chip.

"""


def text(specs: Iterable[KernelSpec], rows: dict[str, dict[str, Any]]) -> str:
    """The whole page."""
    specs = list(specs)
    lines = [_row(spec, work) for spec in specs for work in spec.work]
    names = [f"| `{spec.name}` | `{spec.reference}` |" for spec in specs]
    return (
        _HEAD
        + _TABLE
        + "\n".join(lines)
        + "\n\n"
        + _constants()
        + "\n## References\n\n| kernel | reference |\n|---|---|\n"
        + "\n".join(names)
        + "\n"
        + _MEMORY
        + printed(rows)
        + "\n"
    )


def _row(spec: KernelSpec, work: Work) -> str:
    cells = [spec.name, work.shape, f"{work.cube_flops / 1e9:.4g}", f"{work.moved_bytes / 1e6:.4g}"]
    cells.append(f"{work.cube_flops / work.moved_bytes:.4g}")
    for hardware in CHIPS.values():
        prediction = predict(work, load_hardware(hardware))
        cells += [f"{prediction.seconds * 1e6:.4g}", prediction.bound]
    return f"| {' | '.join(cells)} |"


def _constants() -> str:
    lines = []
    for chip, name in CHIPS.items():
        constants = load_hardware(name).constants
        for key in CONSTANTS:
            value, unit, source = constants[key].value, constants[key].unit, constants[key].source
            lines.append(f"| {chip} (`{name}`) | {key} | {value:g} {unit} | {source} |")
    return "| chip | constant | value | source |\n|---|---|---|---|\n" + "\n".join(lines) + "\n"
