"""What a kernel should take on a chip: the larger of its arithmetic and its memory traffic."""

from __future__ import annotations

from dataclasses import dataclass

from sglang_ascend.comm.hardware import Hardware
from sglang_ascend.kernels.spec import Work

# One die of each chip, of `configs/hardware`.
CHIPS = {"910B": "a2_910b_313t", "910C": "a3_910c"}
# The constants that a prediction rests on.
CONSTANTS = (
    "compute.bf16",
    "compute.int8",
    "compute.efficiency",
    "memory.bandwidth",
    "memory.efficiency",
    "compute.fixed_matmul",
    "compute.fixed_vector",
)


@dataclass(frozen=True)
class Prediction:
    """seconds: predicted time. bound: "cube" or "memory", whichever takes longer."""

    seconds: float
    bound: str


def predict(work: Work, chip: Hardware) -> Prediction:
    """Time of one call, without the vector cores' arithmetic, for which no rate is published."""
    rate = chip.operations_per_s(work.cube_dtype) * chip.si("compute.efficiency")
    cube_s = work.cube_flops / rate
    memory_s = work.moved_bytes / (chip.si("memory.bandwidth") * chip.si("memory.efficiency"))
    start_s = chip.si("compute.fixed_matmul" if work.cube_flops else "compute.fixed_vector")
    return Prediction(max(cube_s, memory_s) + start_s, "cube" if cube_s > memory_s else "memory")
