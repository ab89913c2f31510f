"""One simulated run: a trace, a policy, ranks; and what came out of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from benchmark.dp_controller_costs import Costs
from benchmark.dp_controller_policies import Chooser, tokenized
from benchmark.dp_controller_ranks import Job, RankGroup, SimRank
from benchmark.dp_controller_traces import TraceRequest

#: Seconds of simulated time between two looks at the ranks' KV.
_SAMPLE_S = 1.0


@dataclass(frozen=True)
class Outcome:
    """Figures of one run.

    Attributes:
        kv_ratio_mean, kv_ratio_p99: largest over mean KV tokens of the ranks, over time.
        hit_rate: prompt tokens found in a cache, of all prompt tokens.
        ttft_mean_s, ttft_p50_s, ttft_p99_s: arrival to first token.
        choice_us: CPU time of one choice on this machine, median and 99th percentile, without
            the sending.
    """

    policy: str
    requests: int
    kv_ratio_mean: float
    kv_ratio_p99: float
    hit_rate: float
    ttft_mean_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    choice_us: tuple[float, float]
    reasons: dict[str, int]

    def as_json(self) -> dict:
        """Plain values."""
        return asdict(self)


def simulate(
    requests: list[TraceRequest],
    policy: str,
    ranks: int,
    lockstep: bool,
    costs: Costs,
    progress: Callable[[int], object] = lambda done: None,
) -> Outcome:
    """Send a trace through a policy and simulated ranks.

    Args:
        lockstep: ranks step together, as under DP attention.
        progress: called with 1 for every request.
    """
    every = [SimRank(rank, costs) for rank in range(ranks)]
    groups = [RankGroup(every)] if lockstep else [RankGroup([rank]) for rank in every]
    chooser = Chooser(policy, ranks, lambda now: [s for g in groups for s in g.snapshots(now)])
    ratios, choice_s, jobs, sample_s = [], [], [], _SAMPLE_S
    for number, request in enumerate(requests):
        while sample_s <= request.arrival_s:
            _advance(groups, sample_s)
            ratios.append(_ratio(every))
            sample_s += _SAMPLE_S
        _advance(groups, request.arrival_s)
        req = tokenized(number, request)
        began = time.thread_time()
        rank = chooser.choose(req, request.arrival_s)
        choice_s.append(time.thread_time() - began)
        jobs.append(groups[0 if lockstep else rank].submit(every[rank], request))
        progress(1)
    _advance(groups, float("inf"))
    return _outcome(policy, every, jobs, ratios, choice_s, chooser)


def _advance(groups: list[RankGroup], until_s: float) -> None:
    for group in groups:
        group.advance(until_s)


def _ratio(ranks: list[SimRank]) -> float:
    kv = [rank.kv_tokens for rank in ranks]
    return max(kv) * len(kv) / sum(kv) if sum(kv) else 1.0


def _outcome(
    policy: str,
    ranks: list[SimRank],
    jobs: list[Job],
    ratios: list[float],
    choice_s: list[float],
    chooser: Chooser,
) -> Outcome:
    waits = [job.first_token_s - job.request.arrival_s for job in jobs]
    if min(waits) < 0:
        raise AssertionError("a request got no first token: the simulation is wrong")
    prompt = sum(rank.prompt_tokens for rank in ranks)
    microseconds = np.percentile(choice_s, [50, 99]) * 1e6
    return Outcome(
        policy=policy,
        requests=len(jobs),
        kv_ratio_mean=float(np.mean(ratios)) if ratios else 1.0,
        kv_ratio_p99=float(np.percentile(ratios, 99)) if ratios else 1.0,
        hit_rate=sum(rank.hit_tokens for rank in ranks) / prompt,
        ttft_mean_s=float(np.mean(waits)),
        ttft_p50_s=float(np.percentile(waits, 50)),
        ttft_p99_s=float(np.percentile(waits, 99)),
        choice_us=(float(microseconds[0]), float(microseconds[1])),
        reasons=dict(chooser.router.choices) if chooser.router else {},
    )
