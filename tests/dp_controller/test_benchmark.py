"""The benchmark runs whole, and its simulated ranks lose neither tokens nor requests."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmark import dp_controller
from benchmark.dp_controller_costs import Costs
from benchmark.dp_controller_policies import OURS, POLICIES
from benchmark.dp_controller_ranks import RankGroup, SimRank
from benchmark.dp_controller_run import simulate
from benchmark.dp_controller_traces import BLOCK_TOKENS, TraceRequest, at_speed, load

DATA = Path(__file__).parents[1] / "data"
MOONCAKE = DATA / "dp_mooncake_sample.jsonl"
AZURE = DATA / "dp_azure_sample.csv"


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """One call on both samples: the document, the plot and the printed text."""
    out = tmp_path_factory.mktemp("dp")
    printed, progress = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(progress):
        code = dp_controller.main(["--loads", "0.9", "--out", str(out)])
    assert code == 0
    assert "100%" in progress.getvalue()
    document = json.loads((out / "results.json").read_text())
    return document, (out / "results.svg").read_text(), printed.getvalue()


def test_every_policy_is_run_on_every_trace(result):
    document, plot, text = result
    assert [run["trace"] for run in document["runs"]] == [AZURE.stem, MOONCAKE.stem]
    for run in document["runs"]:
        assert tuple(p["policy"] for p in run["policies"]) == POLICIES
        for policy in run["policies"]:
            assert policy["policy"] in text
            assert 1 <= policy["kv_ratio_mean"] <= policy["kv_ratio_p99"] <= 8
            assert 0 < policy["ttft_mean_s"] <= policy["ttft_p99_s"]
    ElementTree.fromstring(plot)


def test_affinity_finds_more_prefixes_than_round_robin(result):
    """The simulation has no randomness, so this holds or does not."""
    mooncake = {p["policy"]: p for p in result[0]["runs"][1]["policies"]}
    assert mooncake[OURS]["hit_rate"] > 1.2 * mooncake["round_robin"]["hit_rate"]
    assert mooncake[OURS]["ttft_mean_s"] < mooncake["round_robin"]["ttft_mean_s"]
    assert mooncake[OURS]["hit_rate"] <= result[0]["runs"][1]["hit_rate_of_one_pool"]
    assert sum(mooncake[OURS]["reasons"].values()) == 300


SMALL = Costs(prefill_chunk=3 * BLOCK_TOKENS, pool_tokens=20 * BLOCK_TOKENS)


@st.composite
def small_traces(draw):
    rows = draw(
        st.lists(
            st.tuples(
                st.floats(0, 3),
                st.lists(st.integers(0, 2), max_size=6),
                st.integers(1, BLOCK_TOKENS - 1),
                st.integers(1, 2000),
            ),
            min_size=1,
            max_size=25,
        )
    )
    now, requests = 0.0, []
    for gap, path, rest, output in rows:
        now += gap
        names = tuple(hash(tuple(path[: depth + 1])) for depth in range(len(path)))
        prompt = len(names) * BLOCK_TOKENS + rest
        requests.append(TraceRequest(now, prompt, output, names))
    return requests


@settings(deadline=None, max_examples=60)
@given(small_traces(), st.booleans())
def test_simulated_ranks_serve_everything_and_end_empty(requests, lockstep):
    ranks = [SimRank(number, SMALL) for number in range(2)]
    groups = [RankGroup(ranks)] if lockstep else [RankGroup([rank]) for rank in ranks]
    jobs = []
    for number, request in enumerate(requests):
        for group in groups:
            group.advance(request.arrival_s)
        for rank in ranks:
            assert rank.kv_tokens <= SMALL.pool_tokens
        jobs.append(groups[0 if lockstep else number % 2].submit(ranks[number % 2], request))
    for group in groups:
        group.advance(float("inf"))
    for job in jobs:
        assert job.first_token_s >= job.request.arrival_s
    for rank in ranks:
        assert rank.kv_tokens == rank.context == rank._reserved == 0
        assert rank.hit_tokens < rank.prompt_tokens or not rank.prompt_tokens
        report = rank._published
        assert (report.num_running_reqs, report.num_total_tokens) == (0, 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_equal_runs_give_equal_figures(policy):
    requests = load(MOONCAKE)[:60]
    first, second = (
        dataclasses.replace(simulate(requests, policy, 4, False, Costs()), choice_us=(0, 0))
        for _ in range(2)
    )
    assert first == second


def test_traces_are_read_and_sped_up():
    requests = load(MOONCAKE)
    assert len(requests) == 300 and len(load(AZURE)) == 500
    assert all(len(r.blocks) == r.prompt_tokens // BLOCK_TOKENS for r in requests)
    fast = at_speed(requests, 2.0)
    assert [r.prompt_tokens for r in fast] == [r.prompt_tokens for r in requests]
    arrivals = [r.arrival_s for r in fast]
    assert arrivals == sorted(arrivals)
    assert arrivals[-1] <= requests[-1].arrival_s / 2 + 1e-9
    cost = Costs()
    half, whole = (cost.speed_for(requests, 8, share) for share in (0.5, 1.0))
    assert whole == pytest.approx(2 * half)


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["--trace", "/no/such.csv"], "/no/such.csv does not exist"),
        (["--trace", __file__], "is neither .jsonl (Mooncake) nor .csv (Azure)"),
        (["--loads", "0"], "--loads 0.0 is out of range"),
        (["--ranks", "0"], "--ranks 0 is too small"),
        (["--requests", "1"], "--requests 1 is too small"),
    ],
)
def test_bad_arguments_are_one_line(argv, reason, capsys):
    assert dp_controller.main(argv) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1 and reason in errors[0]
