"""The model against published results, and the constants against the fit that they come from."""

from __future__ import annotations

import dataclasses

import pytest

from sglang_ascend.planner import ablations, constants, docs, evaluate, fit, published

POINTS = published.points()


def test_every_point_is_near_what_was_published():
    for point in POINTS:
        assert published.predict(point, constants.default()) == pytest.approx(point.value, rel=0.15)


def test_leave_one_out_meets_its_bounds():
    content = evaluate.read()
    assert {row["point"] for row in content["leave_one_out"]} == {point.name for point in POINTS}
    median, worst = evaluate.summary(content["leave_one_out"])
    assert median <= 0.07
    assert worst <= 0.15


def test_the_stored_evaluation_was_made_with_these_constants():
    content = evaluate.read()
    own = constants.default()
    for name, value in content["constants"].items():
        assert getattr(own, name) == pytest.approx(value), name
    for row in content["leave_one_out"]:
        point = next(p for p in POINTS if p.name == row["point"])
        error = published.predict(point, own) / point.value - 1
        assert row["fitted_error"] == pytest.approx(error, abs=1e-4), point.name


@pytest.mark.parametrize("name", ["cm384_combine_ep8", "allreduce_2x8k"])
def test_leaving_a_point_out_refits(name):
    point = next(p for p in POINTS if p.name == name)
    stored = next(r for r in evaluate.read()["leave_one_out"] if r["point"] == name)
    found = fit.leave_out(POINTS, [[point]])[0]
    assert found.error == pytest.approx(stored["error"], abs=2e-3)
    assert found.error != pytest.approx(found.fitted_error, abs=1e-6)


def test_no_fitted_constant_serves_one_point_only():
    base = {p.name: published.predict(p, constants.default()) for p in POINTS}
    assert set(constants.fitted()) == set(fit.PRIOR)
    for name in constants.fitted():
        own = constants.default()
        moved = own.changed({name: getattr(own, name) * 0.95})
        touched = [p.name for p in POINTS if published.predict(p, moved) != base[p.name]]
        assert len(touched) >= 4, (name, touched)


def test_fit_finds_constants_that_made_the_points():
    """Points invented by the model itself lead the fit back to where they came from."""
    some = [p for p in POINTS if p.kind in ("prefill_ms", "dispatch_us", "combine_us")]
    truth = constants.default().changed({"link_efficiency": 0.6, "compute_efficiency": 0.6})
    invented = [dataclasses.replace(p, value=published.predict(p, truth)) for p in some]
    found = fit.fit(invented)
    for point in invented:
        assert published.predict(point, found) == pytest.approx(point.value, rel=0.02)
    assert found.link_efficiency == pytest.approx(0.6, rel=0.06)


def test_held_out_points_stay_in_reach():
    rows = evaluate.held_out()
    assert len(rows) >= 10
    median, worst = evaluate.summary(rows)
    assert median < 0.15
    assert worst < 0.40


def test_ablations_have_the_sign_and_bytes_of_the_reports():
    rows = {row.name: row.model for row in ablations.run()}
    in_node = next(v for k, v in rows.items() if k.startswith("TP to DP within a layer: bytes"))
    assert in_node == "-71.4%"
    assert next(v for k, v in rows.items() if "at 32 cards" in k).startswith("allgather")
    assert next(v for k, v in rows.items() if "at 144 cards" in k).startswith("dispatch")
    wire = next(v for k, v in rows.items() if k.startswith("FlashComm, bytes"))
    assert -35 <= float(wire.removesuffix("%")) <= -25


def test_page_and_pictures_are_up_to_date():
    """`python -m sglang_ascend.planner docs` writes them."""
    text = docs.PAGE.read_text()
    assert text == docs.rendered(text)
    for name, content in docs.files().items():
        assert (docs.PAGE.parent / name).read_text() == content, name
        assert f"({name})" in text
