"""What users do through the official openai client, against a running server."""

from __future__ import annotations

import json
import re
import time

import openai
import pytest
import requests

MODEL = "smollm2-135m-instruct"
QUESTION = [{"role": "user", "content": "Name the capital of France in one short sentence."}]


@pytest.fixture(scope="module")
def client(smollm2_server):
    return openai.OpenAI(base_url=f"{smollm2_server.url}/v1", api_key="none", max_retries=0)


def chat(client, **kwargs):
    kwargs = {"model": MODEL, "messages": QUESTION, "temperature": 0, "max_tokens": 24, **kwargs}
    return client.chat.completions.create(**kwargs)


def test_chat_answers(client):
    answer = chat(client)
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens > 0


def test_chat_stream_equals_answer_and_reports_usage(client):
    whole = chat(client)
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert reasons.count(whole.choices[0].finish_reason) == 1


def test_completion_and_its_stream(client):
    body = {"model": MODEL, "prompt": "1, 2, 3, 4,", "temperature": 0, "max_tokens": 12}
    whole = client.completions.create(**body)
    assert "5" in whole.choices[0].text
    pieces = client.completions.create(**body, stream=True)
    assert "".join(c.choices[0].text for c in pieces if c.choices) == whole.choices[0].text


def test_chat_logprobs_belong_to_their_tokens(client):
    answer = chat(client, logprobs=True, top_logprobs=3)
    rows = answer.choices[0].logprobs.content
    assert len(rows) == answer.usage.completion_tokens
    for row in rows:
        assert row.logprob <= 0
        best = max(row.top_logprobs, key=lambda top: top.logprob)
        assert best.token == row.token, "greedy decoding takes the most probable token"
        assert len(row.top_logprobs) == 3
    assert "".join(row.token for row in rows).startswith(answer.choices[0].message.content[:5])


def test_completion_logprobs(client):
    answer = client.completions.create(
        model=MODEL, prompt="The sun is", temperature=0, max_tokens=6, logprobs=2
    )
    logprobs = answer.choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == answer.usage.completion_tokens
    assert "".join(logprobs.tokens) == answer.choices[0].text


def test_stop_string_is_cut(client):
    free = client.completions.create(
        model=MODEL, prompt="1, 2, 3, 4,", temperature=0, max_tokens=24
    )
    stop = free.choices[0].text[6:9]
    cut = client.completions.create(
        model=MODEL, prompt="1, 2, 3, 4,", temperature=0, max_tokens=24, stop=stop
    )
    assert cut.choices[0].text == free.choices[0].text.split(stop)[0]
    assert cut.choices[0].finish_reason == "stop"


def test_stop_token_ends_the_answer(smollm2_server):
    body = {"text": "1, 2, 3, 4,", "sampling_params": {"temperature": 0, "max_new_tokens": 12}}
    ids = smollm2_server.generate(body)["output_ids"]
    body["sampling_params"]["stop_token_ids"] = [ids[3]]
    stopped = smollm2_server.generate(body)["output_ids"]
    assert stopped == ids[: ids.index(ids[3]) + 1]


def test_n_answers_differ_in_index_and_agree_when_greedy(client):
    answer = chat(client, n=3)
    assert sorted(choice.index for choice in answer.choices) == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) == 1


def test_seed_repeats_and_temperature_varies(client):
    hot = {"temperature": 1.5, "max_tokens": 16}
    first = chat(client, seed=7, **hot).choices[0].message.content
    assert chat(client, seed=7, **hot).choices[0].message.content == first
    others = {chat(client, seed=seed, **hot).choices[0].message.content for seed in range(20, 25)}
    assert len(others) > 1


def test_n_answers_with_a_seed_differ_and_repeat(client):
    hot = {"temperature": 1.5, "max_tokens": 12, "n": 3, "seed": 11}
    first = [choice.message.content for choice in chat(client, **hot).choices]
    assert len(set(first)) == 3
    assert [choice.message.content for choice in chat(client, **hot).choices] == first


def test_min_p_and_top_k_work_with_a_seed(client):
    filtered = {"temperature": 1.2, "max_tokens": 12, "seed": 3}
    extra = {"extra_body": {"min_p": 0.05, "top_k": 20}}
    first = chat(client, **filtered, **extra).choices[0].message.content
    assert chat(client, **filtered, **extra).choices[0].message.content == first


def test_json_schema_constrains(client):
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "people": {"type": "integer"}},
        "required": ["city", "people"],
        "additionalProperties": False,
    }
    answer = chat(
        client,
        max_tokens=80,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "city", "schema": schema, "strict": True},
        },
    )
    parsed = json.loads(answer.choices[0].message.content)
    assert set(parsed) == {"city", "people"} and isinstance(parsed["people"], int)


def test_regex_constrains(client):
    answer = chat(client, extra_body={"regex": r"(yes|no), [0-9]{3}"})
    assert re.fullmatch(r"(yes|no), [0-9]{3}", answer.choices[0].message.content)


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a city",
        "strict": True,  # without it only the shape of a call is enforced, not its arguments
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
            "required": ["city"],
        },
    },
}


def test_required_tool_call(client):
    answer = chat(client, tools=[WEATHER], tool_choice="required", max_tokens=64)
    call = answer.choices[0].message.tool_calls[0]
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome")


def test_streamed_tool_call_equals_the_whole_one(client):
    kwargs = {"tools": [WEATHER], "tool_choice": "required", "max_tokens": 64}
    whole = chat(client, **kwargs).choices[0].message.tool_calls[0].function
    name, arguments = "", ""
    for chunk in chat(client, stream=True, **kwargs):
        for call in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
            name += call.function.name or ""
            arguments += call.function.arguments or ""
    assert name == whole.name
    assert json.loads(arguments) == json.loads(whole.arguments)


def test_long_prompt_goes_through_chunked_prefill(client):
    filler = "The grass is green. " * 120
    answer = client.completions.create(model=MODEL, prompt=filler, temperature=0, max_tokens=8)
    assert answer.usage.prompt_tokens > 512, "longer than two prefill chunks"
    assert "grass" in answer.choices[0].text or "green" in answer.choices[0].text


def test_models_and_health(smollm2_server):
    models = smollm2_server.get("/v1/models").json()["data"]
    assert [model["id"] for model in models] == [MODEL]
    assert smollm2_server.get("/health").status_code == 200
    assert smollm2_server.get("/health_generate").status_code == 200


def test_metrics_count_tokens(client, smollm2_server):
    def generated() -> float:
        text = smollm2_server.get("/metrics").text
        found = re.findall(r"^sglang:generation_tokens_total\{[^}]*\} ([0-9.e+]+)$", text, re.M)
        return sum(map(float, found))

    before = generated()
    made = chat(client).usage.completion_tokens
    assert generated() >= before + made


def test_disconnect_frees_the_request(smollm2_server):
    body = {
        "text": "Tell a very long story.",
        "sampling_params": {"max_new_tokens": 1500, "ignore_eos": True, "temperature": 0},
        "stream": True,
    }
    with requests.post(f"{smollm2_server.url}/generate", json=body, stream=True, timeout=60) as r:
        next(r.iter_content(chunk_size=16))
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        load = smollm2_server.get("/v1/loads").json()["loads"]
        if all(rank["num_running_reqs"] == 0 for rank in load):
            return
        time.sleep(0.5)
    raise AssertionError("the request of a client that went away still runs after 30 s")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"messages": [{"role": "user", "content": "word " * 9000}]}, ["context"]),
        ({"messages": "not a list"}, ["messages"]),
        ({"messages": []}, ["message"]),
        ({"messages": QUESTION, "max_tokens": "many"}, ["max_tokens"]),
        ({"messages": QUESTION, "temperature": -1}, ["temperature"]),
        ({}, ["messages"]),
    ],
)
def test_bad_bodies_get_a_useful_4xx(smollm2_server, body, words):
    response = smollm2_server.post("/v1/chat/completions", {"model": MODEL, **body})
    assert 400 <= response.status_code < 500, response.text
    for word in words:
        assert word in response.text.lower()


def test_malformed_json_is_a_4xx(smollm2_server):
    response = requests.post(
        f"{smollm2_server.url}/v1/chat/completions",
        data="{not json",
        headers={"Content-Type": "application/json"},
        timeout=30,
    )
    assert 400 <= response.status_code < 500
    assert smollm2_server.get("/health_generate").status_code == 200
