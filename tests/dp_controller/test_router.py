"""The policy with its memory: prefixes, sessions, dead ranks, named ranks, aborts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_ascend.dp_controller.outstanding import Report
from sglang_ascend.dp_controller.policy import ceiling
from sglang_ascend.dp_controller.router import DEFAULT_POOL_TOKENS, Request, Router
from sglang_ascend.dp_controller.settings import PolicySettings

BLOCK = 64
PROMPT = 10 * BLOCK


def router(ranks=4, **changed):
    return Router(ranks, BLOCK, PolicySettings(**changed))


def request(rid, chain=(), **more):
    return Request(f"{rid}", PROMPT, chain, max_new_tokens=64, ignore_eos=True, **more)


def route(r, *args, live=range(4), now_s=1.0, **more):
    return r.route(request(*args, **more), list(live), now_s)


def test_a_prefix_goes_where_it_was_and_others_spread():
    r = router()
    first = route(r, 0, range(10))
    assert first.reason == "balance"
    others = {route(r, n, range(1000 * n, 1000 * n + 10)).rank for n in range(1, 4)}
    assert others == set(range(4)) - {first.rank}
    again = route(r, 4, [*range(9), 77])
    assert (again.rank, again.reason, again.matched_tokens) == (first.rank, "affinity", 9 * BLOCK)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=300))
def test_one_hot_prefix_cannot_pile_up_on_one_rank(families):
    """Nothing is ever finished, and everything shares prefixes: the worst case for balance."""
    r = router()
    for number, family in enumerate(families):
        before = r.loads()
        choice = route(r, number, range(100 * family, 100 * family + 9))
        assert before[choice.rank].kv <= ceiling(before, r.settings) * (1 + 1e-9)
    kv = [load.kv for load in r.loads().values()]
    mean, size = sum(kv) / len(kv), PROMPT + 64
    slack = r.settings.spread_of_pool * DEFAULT_POOL_TOKENS
    assert max(kv) <= mean + max(r.settings.spread * mean, slack) + size + 1e-6


def test_a_flush_forgets_prefixes():
    r = router()
    route(r, 0, range(10))
    r.flush()
    assert route(r, 1, range(10)).matched_tokens == 0


def test_a_named_rank_is_obeyed_and_counts():
    r = router()
    for number in range(50):
        assert route(r, number, rank=2).rank == 2
    assert r.choices == {"explicit": 50}
    assert r.loads()[2].kv == 50 * (PROMPT + 64)
    assert route(r, 99).rank != 2


def test_a_session_with_state_stays_whatever_the_balance():
    r = router()
    home = route(r, 0, session="s", session_is_state=True).rank
    for number in range(1, 100):
        assert route(r, number, rank=home).rank == home
    last = route(r, 100, session="s", session_is_state=True)
    assert (last.rank, last.reason) == (home, "session")
    r.close_session("s")
    assert route(r, 101, session="s", session_is_state=True).rank != home


def test_a_session_by_name_moves_when_its_rank_is_full():
    r = router()
    home = route(r, 0, session="s").rank
    assert route(r, 1, session="s").rank == home
    for number in range(2, 100):
        route(r, number, rank=home)
    moved = route(r, 100, session="s").rank
    assert moved != home
    assert route(r, 101, session="s").rank == moved


def test_the_longest_unused_session_is_forgotten_first():
    r = router(max_sessions=2)
    a = route(r, 0, session="a").rank
    route(r, 1, session="b")
    route(r, 2, session="a")
    route(r, 3, session="c")
    assert route(r, 4, session="a").rank == a
    assert r.choices["session"] == 2


def test_a_dead_rank_gets_nothing_and_its_memory_goes():
    r = router()
    home = route(r, 0, range(10), session="s", session_is_state=True).rank
    alive = [rank for rank in range(4) if rank != home]
    moved = route(r, 1, range(10), live=alive, session="s", session_is_state=True)
    assert moved.rank in alive and moved.matched_tokens == 0
    assert set(r.loads()) == set(alive)
    back = route(r, 2, range(10), rank=home)
    assert back.matched_tokens == 0
    assert r.loads()[home].kv == PROMPT + 64


def test_an_abort_lowers_the_load():
    r = router()
    choice = route(r, 0)
    r.cancel("0")
    assert r.loads()[choice.rank].kv == 0
    r.cancel("never sent")


def test_reports_size_the_index_and_lower_the_load():
    r = router(ranks=1)
    route(r, 0, range(10), live=[0])
    small = Report(9.0, requests=0, pool_tokens=4 * BLOCK, generated_tokens=63)
    r.observe({0: small}, 9.0)
    assert r.loads()[0].kv == 0
    assert route(r, 1, range(10), live=[0], now_s=9.0).matched_tokens == 4 * BLOCK


def test_the_mean_output_is_learnt_across_ranks():
    r = router(ranks=2)
    for number in range(400):
        now = 10.0 * number
        r.route(request(number), [0, 1], now)
        reports = {
            rank: Report(
                now + 5 + rank,
                pool_tokens=DEFAULT_POOL_TOKENS,
                generated_tokens=20.0 * (number + 1),
            )
            for rank in range(2)
        }
        r.observe(reports, now + 9)
    # 40 tokens a request from the decode steps of both ranks, and one from its prefill.
    assert 40 <= r.output_length.mean <= 50
