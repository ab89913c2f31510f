"""Token counts of every rank follow from the counts of the attention groups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_ascend.moe.step import rank_token_counts


def test_one_rank_a_group():
    assert rank_token_counts([3, 0, 7], [7, 7, 7], 1) == (3, 0, 7)


def test_padding_is_at_the_end_of_a_group():
    assert rank_token_counts([5, 1], [8, 8], 4) == (2, 2, 1, 0, 1, 0, 0, 0)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5)), min_size=1, max_size=6),
    st.sampled_from([1, 2, 4]),
)
def test_no_token_is_lost(groups, attention_tp):
    real = [tokens for tokens, _ in groups]
    padded = [-(-(tokens + more) // attention_tp) * attention_tp for tokens, more in groups]
    counts = rank_token_counts(real, padded, attention_tp)
    assert len(counts) == len(groups) * attention_tp
    for group, tokens in enumerate(real):
        assert sum(counts[group * attention_tp : (group + 1) * attention_tp]) == tokens


@pytest.mark.parametrize(("real", "padded"), [([3], [5]), ([9], [8]), ([-1], [4])])
def test_impossible_counts(real, padded):
    with pytest.raises(ValueError, match="equal chunks on 4 ranks"):
        rank_token_counts(real, padded, 4)
