"""Which constant moves the answer most."""

from __future__ import annotations

import dataclasses

from sglang_ascend.comm.hardware import Hardware, load_hardware
from sglang_ascend.deploy.deployment import Deployment
from sglang_ascend.errors import ConfigError
from sglang_ascend.planner import constants
from sglang_ascend.planner.constants import Constants
from sglang_ascend.planner.predict import predict
from sglang_ascend.planner.workload import Workload

#: Constants of the hardware beside the planner's own; efficiencies are the planner's.
_HARDWARE = (
    "memory.bandwidth",
    "link.intra_node.bandwidth",
    "link.inter_node.bandwidth",
    "compute.fixed_matmul",
    "compute.fixed_vector",
    "collective.fixed",
)


def tornado(
    deployment: Deployment, workload: Workload, change: float = 0.2
) -> list[tuple[str, float, float]]:
    """Requests a second with each constant lower and higher, relative to the prediction.

    Args:
        change: share by which a constant is lowered and raised; ratios stay within 1.

    Returns:
        Name, change with the lower and with the higher value; widest first, those that move
        nothing left out.
    """
    own, hardware = constants.default(), load_hardware(deployment.hardware)
    base = _answer(deployment, workload, own, hardware)
    rows = []
    for field in dataclasses.fields(Constants):
        value = getattr(own, field.name)
        ratio = constants.table()[field.name].unit == "ratio" and value <= 1
        moved = []
        for factor in (1 - change, 1 + change):
            other = min(1.0, value * factor) if ratio else value * factor
            changed = own.changed({field.name: other})
            moved.append(_answer(deployment, workload, changed, hardware) / base - 1)
        rows.append((field.name.replace("_", " "), *moved))
    for key in (*_HARDWARE, *(k for k in hardware.constants if _is_peak(k))):
        moved = []
        for factor in (1 - change, 1 + change):
            other = hardware.with_values(
                {key: hardware.constants[key].value * factor}, "moved by a sensitivity analysis"
            )
            moved.append(_answer(deployment, workload, own, other) / base - 1)
        rows.append((key, *moved))
    telling = [row for row in rows if max(map(abs, row[1:])) > 5e-4]
    return sorted(telling, key=lambda row: -max(map(abs, row[1:])))


def _is_peak(key: str) -> bool:
    return key in ("compute.int8", "compute.fp8", "compute.bf16", "compute.fp32")


def _answer(
    deployment: Deployment, workload: Workload, own: Constants, hardware: Hardware
) -> float:
    """Requests a second; 0 where the limits cannot be met any more."""
    try:
        return predict(deployment, workload, own, hardware).requests_per_s
    except ConfigError:
        return 0.0
