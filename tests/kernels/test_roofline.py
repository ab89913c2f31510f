"""Predictions, and that the kernels' own numbers about the chips are those of configs/hardware."""

from __future__ import annotations

import pytest

from sglang_ascend.comm.hardware import load_hardware
from sglang_ascend.kernel_proof.planned_memory import LIMIT_BYTES
from sglang_ascend.kernel_proof.roofline import CHIPS, predict
from sglang_ascend.kernels.cores import CUBE_CORES, VECTOR_CORES
from sglang_ascend.kernels.spec import Work


def test_the_larger_of_both_times_and_the_fixed_cost():
    chip = load_hardware("a3_910c").with_values(
        {
            "compute.bf16": 100,
            "compute.efficiency": 0.5,
            "memory.bandwidth": 1,
            "memory.efficiency": 0.25,
            "compute.fixed_matmul": 7,
            "compute.fixed_vector": 3,
        },
        "test",
    )
    by_cube = predict(Work("", cube_flops=5e9, moved_bytes=1), chip)
    assert by_cube.bound == "cube" and by_cube.seconds == pytest.approx(100e-6 + 7e-6)
    vector = predict(Work("", cube_flops=0, moved_bytes=2**40 / 1e6), chip)
    assert vector.bound == "memory" and vector.seconds == pytest.approx(4e-6 + 3e-6)


@pytest.mark.parametrize("target", CHIPS)
def test_memories_and_cores_are_those_of_the_hardware(target):
    chip = load_hardware(CHIPS[target])
    for memory, key in (("ub", "ub"), ("cbuf", "l1"), ("cc", "l0c")):
        assert chip.si(f"chip.{key}") == LIMIT_BYTES[memory]
    assert chip.si("chip.cube_cores") == CUBE_CORES[target]
    assert chip.si("chip.vector_cores") == VECTOR_CORES[target]
