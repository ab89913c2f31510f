"""The seam ledger: every place at which this package changes SGLang, and whether it took effect."""

from __future__ import annotations

import json
import os
import pkgutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from sglang_ascend.dp_controller.seams import DP_CONTROLLER_SEAMS
from sglang_ascend.frontend.seams import FRONTEND_SEAMS
from sglang_ascend.moe.seams import MOE_SEAMS
from sglang_ascend.plugin.seams import PLUGIN_SEAMS
from sglang_ascend.quantization.seams import QUANTIZATION_SEAMS
from sglang_ascend.sampling.seams import SAMPLING_SEAMS
from sglang_ascend.seam import ProcessKind, Seam

ALL_SEAMS: tuple[Seam, ...] = (
    PLUGIN_SEAMS
    + MOE_SEAMS
    + QUANTIZATION_SEAMS
    + SAMPLING_SEAMS
    + FRONTEND_SEAMS
    + DP_CONTROLLER_SEAMS
)

#: Where set, every process writes its statuses to ``<kind>-<pid>.json`` in this folder.
REPORT_DIR_ENV = "SGLANG_ASCEND_LEDGER_DIR"

Status = Literal["applied", "not needed", "FAILED"]


@dataclass(frozen=True)
class SeamStatus:
    """What became of one seam in one process; ``detail`` says why where it failed."""

    seam: str
    status: Status
    detail: str = ""


def needed(kind: ProcessKind, device: str) -> Iterator[Seam]:
    """The seams that a process of this kind installs on this device."""
    for seam in ALL_SEAMS:
        if kind in seam.processes and device in seam.devices:
            yield seam


def statuses(kind: ProcessKind, device: str) -> list[SeamStatus]:
    """Status of every seam in this process, looked up on the objects that SGLang now uses."""
    wanted = set(needed(kind, device))
    return [
        _status(seam) if seam in wanted else SeamStatus(seam.name, "not needed")
        for seam in ALL_SEAMS
    ]


def write_report(kind: ProcessKind, rows: list[SeamStatus]) -> None:
    """Leave this process's statuses for ``doctor`` and the tests, where they asked for it."""
    folder = os.environ.get(REPORT_DIR_ENV)
    if folder:
        path = Path(folder) / f"{kind}-{os.getpid()}.json"
        path.write_text(json.dumps([asdict(row) for row in rows], indent=1))


def _status(seam: Seam) -> SeamStatus:
    try:
        current = pkgutil.resolve_name(seam.target)
        hook = seam.load_hook()
    except Exception as error:
        return SeamStatus(seam.name, "FAILED", f"{type(error).__name__}: {error}")
    if current is hook or _wraps(current, hook):
        return SeamStatus(seam.name, "applied")
    return SeamStatus(seam.name, "FAILED", f"{seam.target} does not carry {seam.hook}")


def _wraps(function, hook) -> bool:
    """Whether a chain of ``HookRegistry`` wrappers around ``function`` contains ``hook``."""
    while function is not None:
        cells = getattr(function, "__closure__", None) or ()
        if any(cell.cell_contents is hook for cell in cells):
            return True
        function = getattr(function, "__wrapped__", None)
    return False
