"""Figures of the quality benchmark, on answers made by hand."""

from __future__ import annotations

import math

import pytest

from benchmark.quantization import compare, windows


def side(logprobs, choices, greedy):
    return {"logprobs": logprobs, "choices": choices, "greedy": greedy}


def test_perplexity_and_agreement():
    base = side([-1.0, -2.0, -3.0], [1, 2, 3], [[5, 6, 7], [5, 6, 7]])
    other = side([-1.0, -2.0, -3.3], [1, 2, 4], [[5, 6, 7], [5, 9, 7]])
    row = compare(base, other)
    assert row["perplexity_float32"] == pytest.approx(math.exp(2.0))
    assert row["perplexity_change"] == pytest.approx(math.exp(0.1) - 1)
    assert row["same_first_choice"] == pytest.approx(2 / 3)
    assert row["greedy_tokens_before_a_difference"] == 2.0
    assert row["greedy_answers_equal"] == 0.5


def test_windows_are_spread_over_the_text():
    assert windows(list(range(10)), 4, 5) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [piece[0] for piece in windows(list(range(100)), 10, 3)] == [0, 30, 60]
