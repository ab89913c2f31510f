"""Shapes of a reference's results, whatever it looks at."""

from __future__ import annotations

import pytest
import torch

from sglang_ascend.contract import outcome
from sglang_ascend.contract.expected import expected_outcome
from sglang_ascend.ops.spec import Operator, OperatorSpec, TensorSpec, Tolerance


def _operator(reference, results: int = 1) -> Operator:
    row = TensorSpec(("rows",), (torch.float32,))
    names = ("y", "z")[:results]
    spec = OperatorSpec(
        "toy", "", "", {"x": row}, dict.fromkeys(names, row), tolerance=Tolerance("")
    )
    return Operator(spec, reference, reference, ())


def _build(device):
    return {
        "x": torch.full((8, 6), 2.0, device=device),
        "counts": torch.full((3,), 2, dtype=torch.int64, device=device),
    }


def _shapes(reference, results=1):
    return [found["shape"] for found in expected_outcome(_operator(reference, results), _build)]


def test_nothing_is_looked_at():
    assert _shapes(lambda x, counts: x @ x.t()) == [[8, 8]]


def test_integers_are_looked_at():
    assert _shapes(lambda x, counts: x[: int(counts.sum())]) == [[6, 6]]
    assert _shapes(lambda x, counts: x.index_select(0, counts.repeat(3).unique())) == [[1, 6]]


def test_floats_are_looked_at():
    assert _shapes(lambda x, counts: x[:, : int(x[0, 0])]) == [[8, 2]]


def test_a_write_of_unknown_values_is_not_lost():
    def reference(x, counts):
        counts[:2] = x[0, :2].long() + 1
        return x[: int(counts.max())]

    assert _shapes(reference) == [[3, 6]]


def test_an_error_of_the_reference_comes_through():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        expected_outcome(_operator(lambda x, counts: x @ x), _build)


def test_what_is_kept_between_calls_has_values():
    kept = []

    def reference(x, counts):
        kept.append(torch.arange(3))
        return x

    assert _shapes(reference) == [[8, 6]]
    assert kept[0].tolist() == [0, 1, 2]


def test_views_of_arguments_and_missing_results():
    (view, nothing) = expected_outcome(_operator(lambda x, counts: (x[1:], None), 2), _build)
    assert view["shares"] == "x" and nothing is None
    other = {**view, "stride": [1, 7], "shares": None}
    assert outcome.differences([view, None], [other, None], ["y", "z"]) == [
        "y: stride must be [6, 1], got [1, 7]",
        "y: shares must be x, got None",
    ]
    assert outcome.differences([None], [view], ["z"]) == ["z: None expected"]
    assert outcome.differences([view], [view, view], ["y"]) == ["1 results expected, got 2"]
