"""A number out of bounds gets a real 400 at every entrance, and hurts nobody else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

HUGE = 10**9
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
LONG = "a " * 20_000


def post(server, path: str, body: dict) -> requests.Response:
    return requests.post(server.url + path, json=body, timeout=120)


@pytest.fixture(scope="module")
def model(smollm2_server) -> str:
    return requests.get(smollm2_server.url + "/v1/models", timeout=30).json()["data"][0]["id"]


ENTRANCES = [
    # path, body that is right, wrong part, what the message names
    ("/generate", {"text": "a"}, {"return_logprob": True, "top_logprobs_num": HUGE}, "128"),
    ("/generate", {"text": ["a", "b"]}, {"top_logprobs_num": [1, HUGE]}, "top_logprobs_num[1]"),
    ("/generate", {}, {"input_ids": [-1]}, "49151"),
    ("/generate", {}, {"input_ids": [[1], [HUGE]]}, "input_ids[1][0]"),
    ("/generate", {"text": "a"}, {"sampling_params": {"n": HUGE}}, "128"),
    ("/generate", {"text": "a"}, {"sampling_params": {"top_k": 2**40}}, "top_k"),
    ("/generate", {"text": "a"}, {"return_logprob": True, "logprob_start_len": 9}, "1 tokens"),
    ("/generate", {"text": "a"}, {"session_params": {"id": 5}}, "session_params.id"),
    ("/generate", {"text": "a"}, {"token_indices_to_pool": [7]}, "token_indices_to_pool"),
    ("/generate", {"text": LONG}, {}, "8192"),
    ("/v1/completions", {"prompt": "a"}, {"logprobs": HUGE}, "128"),
    ("/v1/completions", {"prompt": "a"}, {"n": 0}, "n = 0"),
    ("/v1/completions", {}, {"prompt": [[1], [-1]]}, "prompt"),
    ("/v1/completions", {"prompt": LONG}, {}, "8192"),
    ("/v1/chat/completions", CHAT, {"logprobs": True, "top_logprobs": HUGE}, "128"),
    ("/v1/chat/completions", CHAT, {"n": HUGE}, "128"),
    ("/v1/chat/completions", CHAT, {"logit_bias": {"99999": 1}}, "99999"),
    ("/v1/chat/completions", CHAT, {"stop_token_ids": [-1]}, "stop_token_ids"),
    ("/v1/chat/completions", CHAT, {"max_tokens": 10**6}, "8192"),
    ("/v1/chat/completions", CHAT, {"temperature": 1e30}, "temperature"),
    ("/v1/responses", {"input": "Hi"}, {"temperature": 1e30}, "temperature"),
    ("/v1/responses", {"input": "Hi"}, {"max_output_tokens": 10**6}, "8192"),
    ("/v1/messages", CHAT, {"top_k": 2**40}, "top_k"),
    ("/v1/messages", CHAT, {"messages": [{"role": "user", "content": LONG}]}, "8192"),
    ("/api/chat", CHAT, {"options": {"num_predict": "5"}}, "num_predict"),
    ("/api/generate", {"prompt": "a"}, {"options": {"top_k": 2**40}}, "top_k"),
]
WITHOUT_STREAM = [
    ("/v1/embeddings", {}, {"input": [[-1]]}, "input"),
    ("/encode", {}, {"input_ids": [HUGE]}, "input_ids"),
    ("/v1/score", {"query": "a", "items": ["b"]}, {"label_token_ids": [HUGE]}, str(HUGE)),
    ("/detokenize", {}, {"tokens": [-1]}, "tokens[0]"),
    ("/v1/detokenize", {}, {"tokens": [[1], [2**40]]}, "tokens[1][0]"),
]


def check_refused(answer: requests.Response, names: str) -> None:
    assert answer.status_code == 400, answer.text[:300]
    assert names in answer.text
    assert answer.headers["content-type"].startswith("application/json")
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("path", "good", "bad", "names"), ENTRANCES)
def test_refused(smollm2_server, model, path, good, bad, names, stream):
    body = {"model": model, "stream": stream, **good, **bad}
    if path == "/generate":
        del body["model"]
    check_refused(post(smollm2_server, path, body), names)


@pytest.mark.parametrize(("path", "good", "bad", "names"), WITHOUT_STREAM)
def test_refused_where_nothing_streams(smollm2_server, model, path, good, bad, names):
    check_refused(post(smollm2_server, path, {"model": model, **good, **bad}), names)


def test_nan_in_a_body(smollm2_server):
    for number in ("NaN", "Infinity", "1e999"):
        answer = requests.post(
            smollm2_server.url + "/generate",
            data=f'{{"text": "a", "sampling_params": {{"temperature": {number}}}}}',
            headers={"content-type": "application/json"},
            timeout=60,
        )
        assert answer.status_code == 400


def test_healthy_requests_beside_refused_ones_get_their_answers(smollm2_server):
    """Eight greedy requests, alone and while bad batches arrive, give the same tokens."""
    body = {"text": "The sea", "sampling_params": {"temperature": 0, "max_new_tokens": 24}}
    bad = {"text": ["a", "b"], "return_logprob": True, "top_logprobs_num": [1, HUGE]}

    def healthy(_):
        answer = post(smollm2_server, "/generate", body)
        assert answer.status_code == 200, answer.text
        return answer.json()["output_ids"]

    expected = healthy(0)
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(healthy, i) for i in range(4)]
        refused = [pool.submit(post, smollm2_server, "/generate", bad) for _ in range(4)]
        assert [answer.result().status_code for answer in refused] == [400] * 4
        assert [answer.result() for answer in answers] == [expected] * 4


def test_ollama_seed_is_taken(smollm2_server, model):
    body = {"model": model, "stream": False, **CHAT, "options": {"seed": 7, "num_predict": 3}}
    assert post(smollm2_server, "/api/chat", body).status_code == 200
