"""What the user chose for expert parallelism; the launcher leaves it in the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache

from sglang_ascend.comm.exchange_cost import TRANSPORTS, Transport
from sglang_ascend.comm.hardware import Hardware, load_hardware
from sglang_ascend.errors import ConfigError

DISPATCH_ENV = "SGLANG_ASCEND_EP_DISPATCH"
WIRE_ENV = "SGLANG_ASCEND_EP_WIRE"
SHARED_RANKS_ENV = "SGLANG_ASCEND_EP_SHARED_RANKS"
HARDWARE_ENV = "SGLANG_ASCEND_EP_HARDWARE"

DISPATCH_CHOICES = ("auto", "allgather", "dispatch", "alternate")
WIRE_CHOICES = ("model", "int8")
#: Value of HARDWARE_ENV that stands for the device's own: measured on reference, by chip on npu.
AUTO_HARDWARE = "auto"


@dataclass(frozen=True)
class EpSettings:
    """Expert parallelism as configured; the same on all ranks.

    Attributes:
        dispatch: one of DISPATCH_CHOICES.
        int8_wire: whether activations are quantised before they are sent.
        shared_ranks: ranks that hold nothing but the shared expert.
        hardware: constants for the prediction, None for those of the device.
    """

    dispatch: str = "auto"
    int8_wire: bool = False
    shared_ranks: int = 0
    hardware: Hardware | None = None

    @property
    def turns(self) -> tuple[Transport, ...]:
        """The transports that steps take in turn; empty where each step chooses."""
        if self.dispatch == "auto":
            return ()
        return TRANSPORTS if self.dispatch == "alternate" else (self.dispatch,)


def from_environment(environ=os.environ) -> EpSettings:
    """Read the settings; values were checked when the launcher parsed them."""
    return EpSettings(
        environ.get(DISPATCH_ENV, DISPATCH_CHOICES[0]),
        environ.get(WIRE_ENV, WIRE_CHOICES[0]) == "int8",
        shared_ranks(environ.get(SHARED_RANKS_ENV, "0")),
        hardware(environ.get(HARDWARE_ENV, AUTO_HARDWARE)),
    )


@cache
def current() -> EpSettings:
    """The settings of this process, read once: layers ask in every step."""
    return from_environment()


def shared_ranks(text: str) -> int:
    """Number of ranks for the shared expert."""
    if not text.isdecimal():
        raise ConfigError("give a number of ranks, 0 or more")
    return int(text)


def hardware(text: str) -> Hardware | None:
    """Constants by name or file; None for ``auto``."""
    return None if text == AUTO_HARDWARE else load_hardware(text)
