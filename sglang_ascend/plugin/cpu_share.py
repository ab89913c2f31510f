"""How the ranks of one machine share its CPU cores on the reference device.

SGLang wants one NUMA node a rank unless ``SGLANG_CPU_OMP_THREADS_BIND`` names cores for each, and a
laptop has one node. Two ranks that each start a thread a core would fight over them.
"""

from __future__ import annotations

import os

BIND_ENV = "SGLANG_CPU_OMP_THREADS_BIND"
THREADS_ENV = "OMP_NUM_THREADS"


def shares(cores: list[int], ranks: int) -> list[list[int]]:
    """Cores of each rank: neighbours, as even as can be; ranks beyond the cores share one each."""
    if ranks >= len(cores):
        return [[cores[rank % len(cores)]] for rank in range(ranks)]
    bounds = [rank * len(cores) // ranks for rank in range(ranks + 1)]
    return [cores[start:end] for start, end in zip(bounds, bounds[1:])]


def publish(ranks: int, environ=os.environ) -> None:
    """Tell SGLang and OpenMP of every process started from here; the user's own settings win."""
    per_rank = shares(sorted(os.sched_getaffinity(0)), ranks)
    environ.setdefault(BIND_ENV, "|".join(",".join(map(str, cores)) for cores in per_rank))
    environ.setdefault(THREADS_ENV, str(min(map(len, per_rank))))
