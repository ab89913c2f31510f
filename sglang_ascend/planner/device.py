"""A rank's compute and memory as rates that are reached, and the roofline over them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from sglang_ascend.comm.hardware import Hardware
from sglang_ascend.planner.constants import Constants

#: Rows that a matrix unit multiplies at a time; a CPU has none, its file describes no chip.
_TILE_ROWS = 16
#: How sharply a kernel turns from memory- to compute-bound: 1 adds the two times, infinity takes
#: the longer. Between, since loads and products of a tile overlap but for the first and the last.
_KNEE = 4.0


@dataclass(frozen=True)
class Work:
    """What one kernel, or several in a row, take, and what they move.

    Attributes:
        seconds: duration.
        flops: operations, a multiply-add counted as two.
        nbytes: to and from device memory.
        bound: "compute", "memory" or "fixed", whichever is the largest part.
        fixed_s: part of ``seconds`` that starting the kernels takes.
    """

    seconds: float
    flops: float = 0.0
    nbytes: float = 0.0
    bound: str = "fixed"
    fixed_s: float = 0.0

    def __add__(self, other: Work) -> Work:
        longer = self if self.seconds >= other.seconds else other
        return Work(
            self.seconds + other.seconds,
            self.flops + other.flops,
            self.nbytes + other.nbytes,
            longer.bound,
            self.fixed_s + other.fixed_s,
        )


def fused(*works: Work) -> Work:
    """The same work in one kernel: started once."""
    total = sum(works[1:], works[0])
    start = max(work.fixed_s for work in works)
    return replace(total, seconds=total.seconds - total.fixed_s + start, fixed_s=start)


NOTHING = Work(0.0)


@dataclass(frozen=True)
class Device:
    """Constants of the hardware under the planner's efficiencies."""

    hardware: Hardware
    constants: Constants

    @cached_property
    def memory_bytes_per_s(self) -> float:
        return self.hardware.si("memory.bandwidth") * self.hardware.si("memory.efficiency")

    @cached_property
    def _fixed(self) -> tuple[float, float]:
        si = self.hardware.si
        return si("compute.fixed_matmul"), si("compute.fixed_vector")

    @cached_property
    def _tile_rows(self) -> int:
        return _TILE_ROWS if any(k.startswith("chip.") for k in self.hardware.constants) else 1

    def rate(self, dtype: str) -> float:
        """Operations a second that a large matrix multiplication reaches."""
        return self.hardware.operations_per_s(dtype) * self.hardware.si("compute.efficiency")

    def vector(self, nbytes: float, kernels: int = 1) -> Work:
        """Token-wise kernels: memory traffic and a fixed cost each."""
        seconds = nbytes / self.memory_bytes_per_s
        fixed = kernels * self._fixed[1]
        bound = "memory" if seconds > fixed else "fixed"
        return Work(seconds + fixed, 0.0, nbytes, bound, fixed)

    def matmul(
        self, rows: float, inner: int, columns: float, dtype: str, weight_bytes: float,
        row_bytes: float = 0.0, groups: float = 1.0,
    ) -> Work:  # fmt: skip
        """``groups`` products of [rows / groups, inner] and [inner, columns], as one kernel.

        Args:
            rows: over all groups; those of a group are padded to whole tiles.
            dtype: that the product is computed in.
            weight_bytes: of all groups' right-hand sides.
            row_bytes: read and written for each row.
        """
        if rows <= 0:
            return NOTHING
        tile = self._tile_rows
        padded = max(rows, groups * tile * math.ceil(rows / groups / tile))
        flops = 2.0 * rows * inner * columns
        compute = flops * (padded / rows) / self.rate(dtype)
        nbytes = weight_bytes + rows * row_bytes
        memory = nbytes / self.memory_bytes_per_s
        return self._roofline(compute, memory, flops, nbytes)

    def output_layer(
        self, rows: float, inner: int, columns: float, dtype: str, weight_bytes: float,
        row_bytes: float,
    ) -> Work:  # fmt: skip
        """Logits, for devices that compute them like any other product; see ``matmul``."""
        return self.matmul(rows, inner, columns, dtype, weight_bytes, row_bytes)

    def attention(self, flops: float, nbytes: float, dtype: str, efficiency: float) -> Work:
        """Attention over a cache: ``efficiency`` of peak, or the cache at its own bandwidth."""
        compute = flops / (self.hardware.operations_per_s(dtype) * efficiency)
        reached = self.constants.attention_memory_efficiency
        memory = nbytes / (self.hardware.si("memory.bandwidth") * reached)
        return self._roofline(compute, memory, flops, nbytes)

    def _roofline(self, compute: float, memory: float, flops: float, nbytes: float) -> Work:
        longer = max(compute, memory)
        seconds = 0.0
        if longer > 0:
            parts = (compute / longer) ** _KNEE + (memory / longer) ** _KNEE
            seconds = longer * parts ** (1 / _KNEE)
        fixed = self._fixed[0]
        bound = "compute" if compute >= memory else "memory"
        return Work(seconds + fixed, flops, nbytes, "fixed" if fixed > seconds else bound, fixed)
