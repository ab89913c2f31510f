"""Consistency of named axes over the arguments of one call."""

import re
from collections.abc import Sequence

_NAME = re.compile(r"[a-z_]\w*")


class AxisBinding:
    """The sizes that the named axes of a call have, and where each was first seen."""

    def __init__(self):
        self.sizes: dict[str, int] = {}
        self._seen_in: dict[str, str] = {}
        self._pending: list[tuple[str, int, str | int, int]] = []

    def bind(self, argument: str, axes: Sequence[str | int], shape: Sequence[int]) -> None:
        """Record the shape of an argument; conflicts are reported by `mismatch`."""
        for position, (axis, size) in enumerate(zip(axes, shape)):
            if isinstance(axis, str) and _NAME.fullmatch(axis) and axis not in self.sizes:
                self.sizes[axis] = int(size)
                self._seen_in[axis] = argument
            else:
                self._pending.append((argument, position, axis, int(size)))

    def mismatch(self) -> str | None:
        """The first conflict in one line (argument, axis, expected, got), or None.

        An expression over an axis that no argument has named yet is kept for the next call.
        """
        unresolved = []
        for argument, position, axis, size in self._pending:
            expected = axis if isinstance(axis, int) else self._evaluate(axis)
            if expected is None:
                unresolved.append((argument, position, axis, size))
            elif expected != size:
                origin = f" as in {self._seen_in[axis]}" if axis in self._seen_in else ""
                return f"{argument} axis {position} ({axis}) must be {expected}{origin}, got {size}"
        self._pending = unresolved
        return None

    def _evaluate(self, expression: str) -> int | None:
        """Sum of products of names and integers, such as "2*inter" or "latent+rope"."""
        total = 0
        for term in expression.split("+"):
            product = 1
            for factor in term.split("*"):
                factor = factor.strip()
                if factor.isdigit():
                    product *= int(factor)
                elif factor in self.sizes:
                    product *= self.sizes[factor]
                else:
                    return None
            total += product
        return total
