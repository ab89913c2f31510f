"""What happens to a request on one rank never changes what another rank answers.

Each test makes something happen on rank 0 alone, while rank 1 answers requests whose tokens are
compared with those of a server with one rank.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from tests.conftest import CONTEXT_LENGTH
from tests.support.prompts import LONG_PROMPT
from tests.support.reference import assert_same_tokens
from tests.support.traffic import random_traffic, send, send_for_answers

QUIET = {"routed_dp_rank": 1}


@pytest.fixture(scope="module")
def neighbours(tiny_deepseek_server):
    """40 requests for rank 1, with the answers of a server with one rank."""
    traffic = random_traffic(40, seed=11, seconds=3)
    return traffic, send_for_answers(tiny_deepseek_server, traffic)


def during(server, neighbours, event) -> object:
    """Run `event` beside the requests of rank 1; its result, once these have proved right."""
    traffic, expected = neighbours
    with ThreadPoolExecutor(1) as pool:
        happened = pool.submit(event)
        for one, got, want in zip(traffic, send(server, traffic, QUIET), expected, strict=True):
            assert_same_tokens(one.prompt, got, want)
        return happened.result(timeout=120)


def on_rank_0(server, text, **params) -> requests.Response:
    sampling = {"temperature": 0, "max_new_tokens": 16, **params}
    body = {"text": text, "sampling_params": sampling, "routed_dp_rank": 0}
    return server.post("/generate", body)


def test_a_grammar_becomes_ready(ep2_server, neighbours):
    def event():
        return [
            on_rank_0(ep2_server, "A", regex=f"[a-f]{{{n},{n + 3}}} end").json()["text"]
            for n in range(3, 9)
        ]

    for n, text in zip(range(3, 9), during(ep2_server, neighbours, event)):
        assert set(text.split(" ")[0]) <= set("abcdef") and len(text) >= n


def test_requests_are_aborted(ep2_server, neighbours):
    def aborted(number: int) -> str:
        body = {
            "text": f"Number {number}",
            "rid": f"abort-{number}",
            "sampling_params": {"max_new_tokens": 400, "ignore_eos": True},
            "routed_dp_rank": 0,
        }
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(ep2_server.post, "/generate", body)
            time.sleep(0.4)
            ep2_server.post("/abort_request", {"rid": body["rid"]})
            return answer.result(60).json()["meta_info"]["finish_reason"]["type"]

    reasons = during(ep2_server, neighbours, lambda: [aborted(number) for number in range(6)])
    assert reasons.count("abort") >= 4


def test_requests_are_retracted(ep2_server, neighbours):
    """More running requests than the KV pool of rank 0 (4,096 tokens) can hold."""

    def event():
        # With ignore_eos, SGLang would set all 400 tokens aside beforehand.
        sampling = {"temperature": 0, "max_new_tokens": 400, "min_new_tokens": 400}
        body = {
            "text": [f"Story {number}" for number in range(12)],
            "sampling_params": sampling,
            "routed_dp_rank": 0,
        }
        return ep2_server.post("/generate", body, 240).json()

    answers = during(ep2_server, neighbours, event)
    assert all(len(answer["output_ids"]) == 400 for answer in answers)
    assert "KV cache pool is full. Retract requests." in ep2_server.log.read_text()


def test_prefixes_are_hit(ep2_server, neighbours):
    def event():
        return [on_rank_0(ep2_server, LONG_PROMPT).json() for _ in range(4)]

    answers = during(ep2_server, neighbours, event)
    assert answers[-1]["meta_info"]["cached_tokens"] > 100
    assert len({tuple(answer["output_ids"]) for answer in answers}) == 1


def test_the_context_ends(ep2_server, neighbours):
    def event():
        ids = [5 + n % 50 for n in range(CONTEXT_LENGTH - 24)]
        sampling = {"temperature": 0, "max_new_tokens": 23, "ignore_eos": True}
        body = {"input_ids": ids, "sampling_params": sampling, "routed_dp_rank": 0}
        return [ep2_server.generate(body) for _ in range(3)]

    for answer in during(ep2_server, neighbours, event):
        assert answer["meta_info"]["finish_reason"]["type"] == "length"


def test_clients_run_out_of_time(ep2_server, neighbours):
    """A client that hangs up: SGLang notices and aborts its request."""

    def event():
        for number in range(4):
            body = {
                "text": f"Never read {number}",
                "sampling_params": {"max_new_tokens": 1000, "ignore_eos": True},
                "routed_dp_rank": 0,
            }
            with pytest.raises(requests.Timeout):
                ep2_server.post("/generate", body, timeout=0.3)
        return True

    assert during(ep2_server, neighbours, event)
