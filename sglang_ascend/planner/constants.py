"""The planner's own constants: value, unit and source, with those that are fitted told apart."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

import yaml

from sglang_ascend.comm.hardware import UNITS, Constant, Hardware

FILE = Path(__file__).with_name("constants.yaml")
#: Constants of the hardware files that the planner replaces by its fitted ones, and the word in
#: their source that allows it: a figure that was measured for its hardware stays.
_HARDWARE_KEYS = {
    "compute_efficiency": ("default", ("compute.efficiency",)),
    "memory_efficiency": ("default", ("memory.efficiency",)),
    "link_efficiency": (
        "default",
        ("link.same_card.efficiency", "link.intra_node.efficiency", "link.inter_node.efficiency"),
    ),
    "dispatch_row": ("fitted", ("dispatch.row",)),
    "peer_poll": ("fitted", ("collective.post",)),
}


@dataclass(frozen=True)
class Constants:
    """Values in SI units; the meaning of each is its comment in ``constants.yaml``."""

    compute_efficiency: float
    memory_efficiency: float
    link_efficiency: float
    prefill_attention_efficiency: float
    expert_skew: float
    dispatch_row: float
    peer_poll: float
    attention_efficiency: float
    attention_half_rows: float
    attention_memory_efficiency: float
    unbalanced_skew: float
    host_step: float
    host_draft: float
    prefetch_share: float

    def changed(self, values: Mapping[str, float]) -> Constants:
        """A copy with other values."""
        return replace(self, **values)

    def on(self, hardware: Hardware) -> Hardware:
        """The hardware with the fitted values where it has no better ones of its own."""
        values = {}
        for name, (word, keys) in _HARDWARE_KEYS.items():
            for key in keys:
                constant = hardware.constants.get(key)
                if constant and word in constant.source:
                    values[key] = getattr(self, name) / UNITS[constant.unit]
        return hardware.with_values(values, "fitted: planner/constants.yaml")


@functools.cache
def table() -> Mapping[str, Constant]:
    """All constants by name, as the file gives them."""
    content = yaml.safe_load(FILE.read_text())
    names = {field.name for field in fields(Constants)}
    if set(content) != names:
        raise ValueError(f"{FILE.name} and Constants differ: {sorted(names ^ set(content))}")
    return {name: Constant(**entry) for name, entry in content.items()}


def fitted() -> tuple[str, ...]:
    """Names of the constants that were fitted on published points."""
    return tuple(n for n, constant in table().items() if constant.source.startswith("fitted:"))


@functools.cache
def default() -> Constants:
    """The constants of the file."""
    return Constants(**{name: constant.si for name, constant in table().items()})
