"""Sharing of CPU cores between ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_ascend.plugin import cpu_share


@given(st.integers(1, 64), st.integers(1, 64))
def test_every_rank_gets_cores_and_shares_are_even(cores, ranks):
    per_rank = cpu_share.shares(list(range(cores)), ranks)
    sizes = {len(share) for share in per_rank}
    assert len(per_rank) == ranks and min(sizes) >= 1 and max(sizes) - min(sizes) <= 1
    if ranks <= cores:
        assert sorted(core for share in per_rank for core in share) == list(range(cores))


@pytest.mark.parametrize(("ranks", "groups"), [(1, 1), (2, 2), (5, 5)])
def test_published_groups_match_the_ranks_and_the_user_wins(ranks, groups):
    environ = {}
    cpu_share.publish(ranks, environ)
    assert len(environ[cpu_share.BIND_ENV].split("|")) == groups
    chosen = {cpu_share.BIND_ENV: "7", cpu_share.THREADS_ENV: "3"}
    cpu_share.publish(ranks, chosen)
    assert chosen == {cpu_share.BIND_ENV: "7", cpu_share.THREADS_ENV: "3"}
