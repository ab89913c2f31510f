"""Affinity stays under its bound, whatever prefixes, sessions and departures an adversary picks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_ascend.dp_controller.policy import RankLoad, ceiling, choose
from sglang_ascend.dp_controller.settings import PolicySettings
from sglang_ascend.errors import ConfigError

POOL = 10_000
SETTINGS = PolicySettings()


def loads_of(kv, prefill=None):
    return {rank: RankLoad(tokens, (prefill or {}).get(rank, 0), POOL) for rank, tokens in kv}


@st.composite
def traces(draw):
    """Requests with adversarial matches, sessions, prefill queues and departures."""
    ranks = draw(st.integers(1, 6))
    rank = st.integers(0, ranks - 1)
    request = st.fixed_dictionaries(
        {
            "prompt": st.integers(1, 3000),
            "output": st.integers(0, 2000),
            "holders": st.dictionaries(rank, st.floats(0, 1)),
            "session": st.none() | rank,
            "prefill": st.dictionaries(rank, st.integers(0, 10**6)),
            "leavers": st.lists(st.integers(0, 10**6), max_size=3),
        }
    )
    return ranks, draw(st.lists(request, min_size=1, max_size=60))


def replay(ranks, requests, departures):
    """Yield KV before, the rank that was chosen, and the request's size, for every request."""
    alive: list[tuple[int, int]] = []
    for request in requests:
        if departures:
            for leaver in request["leavers"]:
                if alive:
                    alive.pop(leaver % len(alive))
        kv = [sum(size for where, size in alive if where == rank) for rank in range(ranks)]
        matched = {r: int(share * request["prompt"]) for r, share in request["holders"].items()}
        choice = choose(
            request["prompt"],
            matched,
            loads_of(enumerate(kv), request["prefill"]),
            SETTINGS,
            request["session"],
        )
        size = request["prompt"] + request["output"]
        yield kv, choice, size
        alive.append((choice.rank, size))


@settings(deadline=None, max_examples=60)
@given(traces())
def test_a_rank_is_only_chosen_below_the_ceiling(trace):
    for kv, choice, _ in replay(*trace, departures=True):
        mean = sum(kv) / len(kv)
        highest = mean + max(SETTINGS.spread * mean, SETTINGS.spread_of_pool * POOL)
        assert kv[choice.rank] <= highest * (1 + 1e-9)


@settings(deadline=None, max_examples=60)
@given(traces())
def test_max_over_mean_is_bounded_while_requests_only_arrive(trace):
    """max / mean <= 1 + max(spread, spread_of_pool * pool / mean) + largest request / mean."""
    largest = 0
    for kv, choice, size in replay(*trace, departures=False):
        largest = max(largest, size)
        kv[choice.rank] += size
        mean = sum(kv) / len(kv)
        allowed = 1 + max(SETTINGS.spread, SETTINGS.spread_of_pool * POOL / mean) + largest / mean
        assert max(kv) / mean <= allowed * (1 + 1e-9)


@settings(deadline=None, max_examples=60)
@given(traces())
def test_departures_leave_no_rank_above_what_it_was_allowed(trace):
    """With departures, a rank is bounded by the mean at its last request instead of today's."""
    allowed, largest = {}, 0
    for kv, choice, size in replay(*trace, departures=True):
        for rank, tokens in enumerate(kv):
            assert tokens <= (allowed.get(rank, 0) + largest) * (1 + 1e-9)
        largest = max(largest, size)
        allowed[choice.rank] = ceiling(loads_of(enumerate(kv)), SETTINGS)


def test_equal_ranks_take_turns():
    sent = [0, 0, 0]
    for _ in range(9):
        loads = {rank: RankLoad(0, 0, POOL, count) for rank, count in enumerate(sent)}
        sent[choose(100, {}, loads, SETTINGS).rank] += 1
    assert sent == [3, 3, 3]


def test_a_prefix_wins_until_its_rank_is_above_the_ceiling():
    cold = choose(1000, {}, loads_of([(0, 500), (1, 0)]), SETTINGS)
    warm = choose(1000, {0: 900}, loads_of([(0, 500), (1, 0)]), SETTINGS)
    full = choose(1000, {0: 900}, loads_of([(0, 6000), (1, 0)]), SETTINGS)
    assert (cold.rank, cold.reason) == (1, "balance")
    assert (warm.rank, warm.reason, warm.matched_tokens) == (0, "affinity", 900)
    assert (full.rank, full.reason) == (1, "bound")


def test_a_prefix_does_not_wait_behind_a_long_prefill():
    choice = choose(1000, {0: 900}, loads_of([(0, 0), (1, 0)], {0: 5000}), SETTINGS)
    assert choice.rank == 1


def test_a_session_stays_below_the_ceiling_and_moves_above_it():
    near, far = loads_of([(0, 500), (1, 0)]), loads_of([(0, 6000), (1, 0)])
    assert choose(10, {}, near, SETTINGS, session_rank=0).reason == "session"
    assert choose(10, {}, far, SETTINGS, session_rank=0).rank == 1


@pytest.mark.parametrize("field", ["spread", "spread_of_pool", "miss_weight", "kv_weight"])
def test_negative_settings_are_refused(field):
    with pytest.raises(ConfigError, match=f"{field} -1 is negative"):
        PolicySettings(**{field: -1})
