"""A rank's load follows what was sent and what it reports, and ends at nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_ascend.dp_controller.output_length import PRIOR_TOKENS, OutputLength
from sglang_ascend.dp_controller.outstanding import UNREPORTED_S, RankLedger, Report

POOL = 100_000


def report(time_s, requests=0, kv=0, prefill=0, **more):
    return Report(time_s, requests, kv, prefill, pool_tokens=POOL, **more)


def kv(ledger):
    return ledger.load(mean_output=0).kv


def test_a_burst_counts_before_any_report_and_is_not_lost_by_an_early_one():
    ledger = RankLedger(POOL)
    for number in range(3):
        ledger.sent(f"{number}", prompt=100, uncached=60, output=10, now_s=1.0)
    assert (kv(ledger), ledger.load(0).prefill) == (330, 180)
    # Published after the burst by a scheduler that had read its socket before it.
    ledger.observe(report(1.01), now_s=1.02)
    assert (kv(ledger), ledger.load(0).prefill) == (330, 180)


def test_the_second_report_replaces_the_prediction():
    ledger = RankLedger(POOL)
    ledger.sent("a", prompt=100, uncached=100, output=10, now_s=1.0)
    ledger.observe(report(1.01), now_s=1.02)
    ledger.observe(report(1.05, requests=1, kv=104), now_s=1.06)
    assert (kv(ledger), ledger.load(0).prefill) == (114, 0)


def test_finished_requests_lower_the_load_and_are_counted():
    ledger = RankLedger(POOL)
    for number in range(4):
        ledger.sent(f"{number}", prompt=100, uncached=100, output=10, now_s=1.0)
    ledger.observe(report(4.0, requests=4, kv=420), now_s=4.0)
    assert (kv(ledger), ledger.finished) == (460, 0)
    ledger.observe(report(5.0, requests=1, kv=110), now_s=5.0)
    ledger.observe(report(5.1, requests=1, kv=111), now_s=5.1)
    assert (kv(ledger), ledger.finished) == (121, 3)


def test_a_batch_that_was_just_prefilled_is_not_taken_for_finished():
    """SGLang counts it neither as running nor as waiting in that one report."""
    ledger = RankLedger(POOL)
    ledger.sent("a", prompt=100, uncached=100, output=10, now_s=1.0)
    ledger.observe(report(4.0, requests=1, kv=100), now_s=4.0)
    ledger.observe(report(4.1, requests=0, kv=100), now_s=4.1)
    assert kv(ledger) == 110


def test_requests_that_the_ledger_lost_count_with_the_mean_output():
    ledger = RankLedger(POOL)
    ledger.observe(report(1.0, requests=3, kv=300), now_s=1.0)
    assert ledger.load(mean_output=50).kv == 450


def test_an_abort_takes_its_prediction_off_at_once():
    ledger = RankLedger(POOL)
    ledger.sent("a", prompt=100, uncached=100, output=10, now_s=1.0)
    assert not ledger.cancel("b")
    assert ledger.cancel("a")
    assert (kv(ledger), ledger.load(0).prefill) == (0, 0)


def test_a_rank_that_never_reports_is_given_up_by_prediction():
    ledger = RankLedger(POOL)
    ledger.sent("a", prompt=100, uncached=100, output=0, now_s=1.0)
    ledger.observe(report(0.0), now_s=1.0 + UNREPORTED_S)
    assert kv(ledger) == 100
    ledger.observe(report(0.0), now_s=1.1 + UNREPORTED_S)
    assert kv(ledger) == 0


steps = st.lists(
    st.tuples(
        st.sampled_from(["send", "cancel", "report"]),
        st.integers(0, 9),
        st.integers(0, 1000),
        st.floats(0, 1),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(steps)
def test_nothing_is_left_once_an_idle_rank_has_reported(history):
    """Sums are kept step by step; whatever happened, they come back to zero."""
    ledger, now = RankLedger(POOL), 1.0
    for kind, name, size, gap in history:
        now += gap
        if kind == "send":
            ledger.sent(f"{name}", prompt=size, uncached=size // 2, output=size / 4, now_s=now)
        elif kind == "cancel":
            ledger.cancel(f"{name}")
        else:
            ledger.observe(report(now, requests=name, kv=size), now_s=now)
        load = ledger.load(mean_output=1)
        assert load.kv >= -1e-6 and load.prefill >= 0
    for later in (10, 20, 30):
        ledger.observe(report(now + later), now_s=now + later)
    load = ledger.load(mean_output=1)
    assert (load.kv, load.prefill) == (pytest.approx(0, abs=1e-6), 0)


def test_output_length_is_learnt_from_totals():
    length = OutputLength()
    assert length.mean == PRIOR_TOKENS
    for _ in range(400):
        length.learn(finished=10, generated=10 * 70)
    assert length.mean == pytest.approx(70, rel=0.02)
    for _ in range(2000):
        length.learn(finished=10, generated=10 * 700)
    assert length.mean == pytest.approx(700, rel=0.02)


@given(st.lists(st.tuples(st.integers(-50, 50), st.floats(0, 1e5)), max_size=30))
def test_expected_output_respects_the_limit(totals):
    length = OutputLength()
    for finished, generated in totals:
        length.learn(finished, generated)
    assert length.mean >= 1
    for limit in (0, 1, 100, 10**9):
        assert 0 <= length.expected(limit, ignore_eos=False) <= min(limit, length.mean) + 1e-6
    assert length.expected(77, ignore_eos=True) == 77
    assert length.expected(None, ignore_eos=False) == length.mean
