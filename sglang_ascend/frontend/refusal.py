"""The error that tells a client which number was refused and why."""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Any

_SHOWN = 80


class RequestRefused(ValueError):
    """A request that must not reach a scheduler.

    SGLang's HTTP layer turns a ``ValueError`` into a 400 answer in the style of each entrance.
    """

    status_code = HTTPStatus.BAD_REQUEST


def shown(value: Any) -> str:
    """``value`` as an error message shows it: in full where it is short."""
    # repr of an integer beyond 4300 digits raises.
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 256:
        return "an integer of more than 256 bits"
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def is_integer(value: Any) -> bool:
    """Whether ``value`` is an integer of any size; a truth value is not one."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether ``value`` is a finite number that 64 bits hold."""
    if is_integer(value):
        return -(2**63) <= value < 2**63
    return isinstance(value, float) and math.isfinite(value)
