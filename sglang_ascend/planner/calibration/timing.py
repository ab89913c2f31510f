"""How long a call takes."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Time that one figure gets in one repeat, where a single call does not take longer.
LEAST_S = 0.02


def per_call(run: Callable[[], object]) -> float:
    """Seconds of one call, over as many as take LEAST_S."""
    calls, begin = 0, time.perf_counter()
    while not calls or time.perf_counter() - begin < LEAST_S:
        run()
        calls += 1
    return (time.perf_counter() - begin) / calls
