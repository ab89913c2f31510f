"""How much more than the mean the busiest rank gets, from skewed experts and from chance."""

from __future__ import annotations

import functools
import heapq
import math
from statistics import NormalDist


def popularity(experts: int, skew: float) -> tuple[float, ...]:
    """Loads of the experts of a layer with mean 1, lognormal, largest first.

    Args:
        skew: standard deviation of the logarithm of an expert's load.
    """
    normal = NormalDist()
    raw = [math.exp(skew * normal.inv_cdf((i + 0.5) / experts)) for i in range(experts)]
    mean = math.fsum(raw) / experts
    return tuple(load / mean for load in reversed(raw))


@functools.lru_cache(maxsize=4096)
def systematic(experts: int, slots: int, ranks: int, skew: float) -> float:
    """Max over mean of the ranks' loads once the hottest experts have copies.

    Copies go, one by one, to the expert with the largest load a copy; the last such load is the
    level that copies cut peaks down to. With one slot a rank, that is the busiest rank. With more,
    a placement evens out what it foresaw, and ``skew`` is what it did not: slots then fall on ranks
    at random, and the expected maximum over ranks is taken by the normal approximation.

    Args:
        slots: expert slots of all ranks, a multiple of ``ranks``.
    """
    if ranks == 1:
        return 1.0
    loads = popularity(experts, skew)
    copies = [1] * experts
    heap = [(-load, i) for i, load in enumerate(loads)]
    heapq.heapify(heap)
    for _ in range(slots - experts):
        _, i = heapq.heappop(heap)
        copies[i] += 1
        heapq.heappush(heap, (-loads[i] / copies[i], i))
    level = -heap[0][0]
    on_rank = slots // ranks
    if on_rank == 1:
        return level * slots / experts
    cut = [min(load, level) for load in loads]
    mean = math.fsum(cut) / experts
    variance = math.fsum((load - mean) ** 2 for load in cut) / experts
    free = 1 - (on_rank - 1) / (slots - 1)  # slots are drawn without putting back
    return 1 + math.sqrt(variance * free / on_rank) / mean * _normal_maximum(ranks)


def by_chance(rows_per_rank: float, ranks: int) -> float:
    """Max over mean of ranks that draw ``rows_per_rank`` rows each on average, at random."""
    if ranks == 1 or rows_per_rank <= 0:
        return 1.0
    return 1 + _normal_maximum(ranks) / math.sqrt(rows_per_rank)


def longest_context(mean: float, output_tokens: float, requests: float, groups: int) -> float:
    """Mean context in the attention group whose requests are furthest along.

    Requests in flight are spread evenly over their outputs, so a group's mean varies.

    Args:
        mean: tokens in the cache of a request, over all groups.
        output_tokens: that a request grows by.
        requests: of one group.
        groups: that run in step.
    """
    if groups == 1 or requests <= 0:
        return mean
    spread = output_tokens / math.sqrt(12 * max(requests, 1.0))
    return mean + min(output_tokens / 2, spread * _normal_maximum(groups))


@functools.cache
def _normal_maximum(count: int) -> float:
    """Expected largest of ``count`` standard normal draws (Blom's approximation)."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))
