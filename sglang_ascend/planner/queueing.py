"""From an arrival rate to percentiles of TTFT and TPOT.

Prefill: batches of fixed time; a request waits for the batch under way, then behind those before it
(M/D/1, exponential tail). Decode: processor sharing with a rate that depends on the number in
service; its stationary distribution depends on the mean output length only (insensitivity).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

PERCENTILES = (50, 90, 99)
_GRID = 24


@dataclass(frozen=True)
class Waiting:
    """A prefill instance under load.

    Attributes:
        utilisation: of its time, at full batches; 1 or more cannot last.
        batch: prompts that a batch has on average.
        ttft_s: by percentile, without transfer.
    """

    utilisation: float
    batch: float
    ttft_s: dict[int, float]


def prefill(arrivals_per_s: float, batch_s: Callable[[float], float], most: float) -> Waiting:
    """Waiting and service of one instance.

    Args:
        arrivals_per_s: at this instance.
        batch_s: time of a batch of that many prompts.
        most: prompts of a full batch.
    """
    full_s = batch_s(most)
    load = arrivals_per_s * full_s / most
    size = 1.0
    for _ in range(20):
        size = min(most, max(1.0, arrivals_per_s * batch_s(size)))
    service = batch_s(size)
    busy = min(1.0, arrivals_per_s * service / size)
    times = {}
    for percentile in PERCENTILES:
        share = percentile / 100
        under_way = service * max(0.0, 1 - (1 - share) / busy) if busy else 0.0
        backlog = 0.0
        if load < 1:
            mean = load * (full_s / most) / (2 * (1 - load))
            if share > 1 - load:
                backlog = mean / load * math.log(load / (1 - share))
        times[percentile] = service + under_way + backlog
    return Waiting(load, size, times)


def tpot_percentiles(
    requests_per_s: float,
    output_tokens: float,
    tpot_s: Callable[[float], float],
    most: float,
    scale: float,
) -> tuple[dict[int, float], float]:
    """Percentiles of the time per output token over tokens, and the mean number in decode.

    Args:
        tpot_s: at a batch of that many requests a rank.
        most: requests a rank that fit.
        scale: ranks over all instances.
    """
    grid = np.linspace(1e-3, most, _GRID)
    at_grid = np.array([tpot_s(batch) for batch in grid])
    count = np.arange(1, max(2, int(most * scale)) + 1)
    per_token = np.interp(count / scale, grid, at_grid)
    # A request leaves at 1 / (output x TPOT(n)), n of them at n times that.
    growth = np.log(requests_per_s * output_tokens * per_token / count)
    logs = np.cumsum(growth)
    weight = np.exp(logs - logs.max())
    mean = float((weight * count).sum() / weight.sum())
    rate = weight * count / per_token  # tokens a second, the measure that tokens see
    order = np.argsort(per_token, kind="stable")
    cumulative = np.cumsum(rate[order]) / rate.sum()
    found = {
        p: float(per_token[order][min(np.searchsorted(cumulative, p / 100), len(count) - 1)])
        for p in PERCENTILES
    }
    return found, mean
