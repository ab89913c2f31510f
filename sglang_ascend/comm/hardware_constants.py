"""Which constants hardware may have, in which units and ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sglang_ascend.errors import ConfigError

#: Factor from a unit to its SI unit. Decimal (GB) and binary (GiB) units are both spelt out.
UNITS: Mapping[str, float] = MappingProxyType(
    {
        "s": 1.0,
        "us": 1e-6,
        "B": 1.0,
        "KiB": 2.0**10,
        "MiB": 2.0**20,
        "GiB": 2.0**30,
        "GB": 1e9,
        "MB/s": 1e6,
        "GB/s": 1e9,
        "TB/s": 1e12,
        "TiB/s": 2.0**40,
        "GFLOPS": 1e9,
        "TFLOPS": 1e12,
        "TOPS": 1e12,
        "ratio": 1.0,
        "count": 1.0,
        "flag": 1.0,
    }
)
TIME_UNITS = ("us", "s")
_RATE, _SIZE = ("MB/s", "GB/s", "TB/s", "TiB/s"), ("B", "KiB", "MiB", "GiB")
_COMPUTE, _RATIO, _COUNT = ("GFLOPS", "TFLOPS", "TOPS"), ("ratio",), ("count",)

#: Every constant there may be, and the units that it may be given in.
REQUIRED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "node.cards": _COUNT,
        "node.dies_per_card": _COUNT,
        "memory.capacity": _SIZE,
        "memory.bandwidth": _RATE,
        "memory.efficiency": _RATIO,
        "compute.efficiency": _RATIO,
        "compute.fixed_matmul": TIME_UNITS,
        "compute.fixed_vector": TIME_UNITS,
        "link.intra_node.bandwidth": _RATE,
        "link.intra_node.latency": TIME_UNITS,
        "link.intra_node.efficiency": _RATIO,
        "link.inter_node.bandwidth": _RATE,
        "link.inter_node.latency": TIME_UNITS,
        "link.inter_node.efficiency": _RATIO,
        "link.shared_port": ("flag",),
        "collective.fixed": TIME_UNITS,
        "collective.post": TIME_UNITS,
        "dispatch.row": TIME_UNITS,
        "dispatch.overlap": _RATIO,
        "transport.pack_bandwidth": _RATE,
        "transport.allgather_overhead": TIME_UNITS,
        "transport.dispatch_overhead": TIME_UNITS,
        "transfer.bandwidth": _RATE,
    }
)
OPTIONAL: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **{
            f"compute.{dtype}": _COMPUTE
            for dtype in ("fp32", "bf16", "fp16", "fp8", "fp4", "int8", "int4")
        },
        "link.same_card.bandwidth": _RATE,
        "link.same_card.latency": TIME_UNITS,
        "link.same_card.efficiency": _RATIO,
        "chip.cube_cores": _COUNT,
        "chip.vector_cores": _COUNT,
        "chip.l2": _SIZE,
        "chip.l1": _SIZE,
        "chip.l0a": _SIZE,
        "chip.l0b": _SIZE,
        "chip.l0c": _SIZE,
        "chip.ub": _SIZE,
    }
)
_POSITIVE_UNITS = {*_RATE, *_SIZE, *_COMPUTE, *_COUNT}


@dataclass(frozen=True)
class Constant:
    """A figure with its unit (a key of UNITS) and where it comes from.

    source: a reference, or "unmeasured: why this value", or "fitted: on what data".
    """

    value: float
    unit: str
    source: str

    @property
    def si(self) -> float:
        """The value in s, B, B/s, operations/s, or without a unit."""
        return self.value * UNITS[self.unit]


def check_range(where: str, constant: Constant, units: tuple[str, ...]) -> None:
    """Raise ConfigError, beginning with `where`, unless unit and value are accepted."""
    value, unit = constant.value, constant.unit
    if unit not in units:
        raise ConfigError(f"{where}: unit {unit!r} is not one of {', '.join(units)}")
    if unit == "ratio":
        low, high, accepted = 0.0, 1.0, "from 0 to 1"
    elif unit == "flag":
        low, high, accepted = 0.0, 1.0, "0 or 1"
    else:
        low, high, accepted = 0.0, float("inf"), "finite and not negative"
    positive = unit in _POSITIVE_UNITS or where.endswith("efficiency")
    bad = not low <= value <= high or value == float("inf") or (positive and value == 0)
    if bad or (unit == "flag" and value not in (0.0, 1.0)):
        raise ConfigError(
            f"{where}: {value:g} {unit} is not {accepted}" + " and above 0" * positive
        )
