"""A server with two ranks: prefixes and sessions stay together, answers and processes stay whole.

Load reports go over ZMQ, so that the seam which gives them to the controller is needed here, as it
is under DP attention over several nodes; SGLang's reader passes them on through shared memory,
where a controller of one node finds them at once.
"""

from __future__ import annotations

import re
import time

import pytest
import requests

from sglang_ascend.dp_controller.outstanding import SURELY_SEEN_S
from sglang_ascend.models import catalog
from tests.support.reference import Reference, assert_same_tokens

MODEL = "tiny-deepseek-v3"
POOL_TOKENS = 8192
TOKENS = 8
#: After this, a report counts whatever was sent before it.
SETTLED_S = SURELY_SEEN_S + 0.5


@pytest.fixture(scope="module")
def server(start_server):
    server = start_server(
        "--model-path",
        MODEL,
        "--dp-size",
        "2",
        "--page-size",
        "16",
        "--max-total-tokens",
        f"{POOL_TOKENS}",
        "--enable-metrics",
        env={"SGLANG_LOAD_SNAPSHOT_USE_ZMQ": "1"},
    )
    yield server
    server.stop()


def text(key: int) -> str:
    """A few hundred tokens; texts of different keys share less than a prefix block."""
    return f"{key} " + " ".join(f"and {(key + 1) * n} coins for item {n}" for n in range(30))


def ask(server, prompt, **more):
    params = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
    return server.generate({"text": prompt, "sampling_params": params, **more})


def rank(answer) -> int:
    return answer["meta_info"]["dp_rank"]


def metric(server, name: str, **labels) -> float:
    """Sum of a metric over all label values that are not given."""
    found = 0.0
    page = requests.get(f"{server.url}/metrics", timeout=30).text
    for line in page.splitlines():
        match = re.fullmatch(rf"sglang_ascend:{name}(?:{{(.*)}})? (\S+)", line)
        if match and all(f'{k}="{v}"' in (match[1] or "") for k, v in labels.items()):
            found += float(match[2])
    return found


def test_requests_with_one_prefix_go_to_one_rank_and_others_to_both(server):
    by_affinity = metric(server, "dp_choices_total", reason="affinity")
    tokens = metric(server, "dp_affinity_tokens_total")
    shared = [ask(server, f"{text(0)} Tail {n}") for n in range(5)]
    assert len({rank(answer) for answer in shared}) == 1
    assert all(answer["meta_info"]["cached_tokens"] > 200 for answer in shared[1:])
    assert {rank(ask(server, text(key))) for key in range(1, 5)} == {0, 1}
    assert metric(server, "dp_choices_total", reason="affinity") - by_affinity >= 4
    assert metric(server, "dp_affinity_tokens_total") - tokens > 800


def test_both_ranks_give_the_tokens_of_transformers(server):
    reference = Reference(catalog.resolve(MODEL))
    for prompt in (text(0), text(9), "In the beginning"):
        expected = reference.greedy(prompt, TOKENS)
        for named in ({}, {"routed_dp_rank": 0}, {"routed_dp_rank": 1}):
            answer = ask(server, prompt, **named)
            assert rank(answer) == named.get("routed_dp_rank", rank(answer))
            assert_same_tokens(prompt, answer["output_ids"], expected)


def test_a_session_stays_on_its_rank(server):
    """SGLang keeps a session's earlier turns on the rank that computed them, and only there."""
    before = metric(server, "dp_choices_total", reason="session")
    session = requests.post(
        f"{server.url}/open_session", json={"capacity_of_str_len": 1000}, timeout=30
    ).json()
    ranks, lengths, rid = set(), [], None
    for turn in range(4):
        answer = ask(server, "There was a king.", session_params={"id": session, "rid": rid})
        rid = answer["meta_info"]["id"]
        ranks.add(rank(answer))
        lengths.append(answer["meta_info"]["prompt_tokens"])
        ask(server, text(20 + turn))
    assert len(ranks) == 1
    assert lengths == sorted(set(lengths)), "each turn continues the one before"
    assert metric(server, "dp_choices_total", reason="session") - before == 3


def test_a_flush_reaches_both_ranks(server):
    ask(server, text(0))
    server.flush_cache()
    for number in (0, 1):
        answer = ask(server, text(0), routed_dp_rank=number)
        assert answer["meta_info"]["cached_tokens"] == 0


def test_finished_requests_lower_the_predicted_load(server):
    for number in (0, 1):
        ask(server, text(30), routed_dp_rank=number)
    time.sleep(SETTLED_S)
    ask(server, text(31), routed_dp_rank=0)
    assert metric(server, "dp_predicted_kv_tokens", dp_rank=1) == 0
    assert metric(server, "dp_waiting_prefill_tokens", dp_rank=1) == 0
    assert metric(server, "dp_predicted_kv_tokens", dp_rank=0) > 200


def test_no_process_complained(server):
    log = server.log.read_text()
    assert "DP policy: ascend over 2 ranks" in log
    assert "Traceback" not in log
