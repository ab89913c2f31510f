"""The comparison notices each way of being wrong."""

from __future__ import annotations

import pytest
import torch

from sglang_ascend.kernel_proof.comparison import differences
from sglang_ascend.kernel_proof.tolerances import Allowed

EXACT = Allowed(0.0, 0.0, 0.0, "test")
CLOSE = Allowed(0.1, 0.01, 1e-3, "test")
WANT = torch.tensor([[1.0, -2.0], [100.0, float("inf")]])


def test_equal_results_have_no_differences():
    assert differences(WANT.clone(), WANT, EXACT) == []
    assert differences(torch.zeros(3), torch.zeros(3), EXACT) == []
    assert differences(torch.zeros(0, 4), torch.zeros(0, 4), EXACT) == []
    assert differences(WANT + torch.tensor([[0.1, -0.1], [1.0, 0.0]]), WANT, CLOSE) == []


@pytest.mark.parametrize(
    "place, value, words",
    [
        ((0, 1), float("nan"), "1 places differ in being NaN, first at (0, 1)"),
        ((1, 1), float("-inf"), "1 places differ in being +inf, first at (1, 1)"),
        ((1, 1), 7.0, "1 places differ in being +inf, first at (1, 1)"),
        ((1, 0), 101.2, "worst at (1, 0): got 101.2, expected 100"),
    ],
)
def test_the_worst_place_is_named(place, value, words):
    got = WANT.clone()
    got[place] = value
    assert any(words in found for found in differences(got, WANT, CLOSE))


def test_small_errors_everywhere_show_in_the_cosine():
    want = torch.full((1000,), 0.05)
    got = want * torch.tensor([1.0, -1.0]).repeat(500)
    assert differences(got, want, CLOSE) == ["1 - cosine similarity is 1, allowed is 0.001"]


def test_another_shape_is_a_difference():
    assert differences(WANT, WANT[0], CLOSE) == ["shape [2, 2] instead of [2]"]
