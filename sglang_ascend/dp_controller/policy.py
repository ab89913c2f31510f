"""Which rank gets a request: a pure function of the request and of what is known about the ranks.

A rank is *open* to affinity while its KV is at most ``ceiling(...)``. The rank with the least KV
never lies above the mean, so there is always an open one, and what a request gains by a cached
prefix is weighed only between open ranks. Hence the bound, for a rank whose client did not name it:

    KV of the chosen rank before  <=  max((1 + spread) * mean, mean + spread_of_pool * pool)

and, by induction over its last request, with L the largest request:

    KV of a rank  <=  that ceiling, at the mean when it last got a request,  +  L

Pure balance (always the rank with the least KV) satisfies the same with spread = spread_of_pool = 0
and cannot do better without moving requests, so affinity costs no more than the ceiling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sglang_ascend.dp_controller.settings import PolicySettings

#: Why a rank was chosen: the client named it; its session lives there; it holds a prefix; nothing
#: but load spoke for it; a rank with a longer prefix was not open.
Reason = Literal["explicit", "session", "affinity", "balance", "bound"]
REASONS: tuple[Reason, ...] = ("explicit", "session", "affinity", "balance", "bound")


@dataclass(frozen=True)
class RankLoad:
    """What is known about one live rank, in tokens; written by ``outstanding.RankLedger``.

    Attributes:
        kv: predicted KV of its requests, with what they are still expected to generate.
        prefill: uncached prompt tokens that wait to be computed.
        pool: size of its KV pool.
        sent: requests that it got so far; where nothing else differs, ranks take turns.
    """

    kv: float
    prefill: float
    pool: int
    sent: int = 0


@dataclass(frozen=True)
class Choice:
    """The rank of a request, the reason, and the prompt tokens expected in that rank's cache."""

    rank: int
    reason: Reason
    matched_tokens: int = 0


def ceiling(loads: Mapping[int, RankLoad], settings: PolicySettings) -> float:
    """Most KV tokens that a rank may hold and still get a request for another reason than load."""
    mean = sum(load.kv for load in loads.values()) / len(loads)
    pool = min(load.pool for load in loads.values())
    return mean + max(settings.spread * mean, settings.spread_of_pool * pool)


def choose(
    prompt_tokens: int,
    matched_tokens: Mapping[int, int],
    loads: Mapping[int, RankLoad],
    settings: PolicySettings,
    session_rank: int | None = None,
) -> Choice:
    """Pick the open rank on which the request costs least.

    Args:
        prompt_tokens: length of the prompt.
        matched_tokens: by rank, the prompt tokens expected in its cache; ranks without any may be
            left out.
        loads: every live rank; at least one.
        session_rank: where the request's session was last, if that rank is live; kept while open.

    Returns:
        the choice; equal costs go to the rank with less KV, then to the one with fewer requests.
    """
    limit = ceiling(loads, settings)
    if session_rank is not None and loads[session_rank].kv <= limit:
        return Choice(session_rank, "session", matched_tokens.get(session_rank, 0))

    def cost(rank: int) -> tuple[float, float, int, int]:
        load = loads[rank]
        uncached = prompt_tokens - matched_tokens.get(rank, 0)
        tokens = load.prefill + settings.miss_weight * uncached + settings.kv_weight * load.kv
        return tokens, load.kv, load.sent, rank

    best = min((rank for rank, load in loads.items() if load.kv <= limit), key=cost)
    closed = max((matched_tokens.get(r, 0) for r in loads if loads[r].kv > limit), default=0)
    matched = matched_tokens.get(best, 0)
    if closed > matched:
        return Choice(best, "bound", matched)
    return Choice(best, "affinity" if matched else "balance", matched)
