"""Streams of a running server, joined, are its whole answers."""

from __future__ import annotations

import json
import re
from collections import defaultdict

import pytest
import requests

GREEDY = {"temperature": 0, "max_tokens": 32}
#: A grammar makes the model write just this: characters of several tokens, joined ones, and more.
FORCED = "é😀中 b中éé 👩\u200d👧."


def whole(server, path: str, body: dict) -> dict:
    answer = requests.post(server.url + path, json=body, timeout=240)
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(server, path: str, body: dict) -> list[dict]:
    with requests.post(
        server.url + path, json={**body, "stream": True}, stream=True, timeout=240
    ) as answer:
        assert answer.status_code == 200, answer.text
        lines = [line.removeprefix(b"data: ") for line in answer.iter_lines() if line]
    return [json.loads(line) for line in lines if line.startswith(b"{")]


def chat(server, prompt: str, **options) -> tuple[list[dict], dict]:
    body = {"messages": [{"role": "user", "content": prompt}], "model": "m", **GREEDY, **options}
    choices = whole(server, "/v1/chat/completions", body)["choices"]
    streamed = defaultdict(lambda: {"text": "", "rows": [], "reason": None})
    for event in events(server, "/v1/chat/completions", body):
        assert "error" not in event
        for choice in event["choices"]:
            one = streamed[choice["index"]]
            one["text"] += choice["delta"].get("content") or ""
            one["rows"] += (choice.get("logprobs") or {}).get("content") or []
            one["reason"] = choice["finish_reason"] or one["reason"]
    return choices, streamed


@pytest.mark.parametrize("options", [{}, {"regex": re.escape(FORCED)}], ids=["free", "forced"])
def test_chat_text_and_logprob_rows(smollm2_server, options):
    choices, streamed = chat(
        smollm2_server, "Name three colours.", logprobs=True, top_logprobs=2, **options
    )
    one = streamed[0]
    assert one["text"] == choices[0]["message"]["content"]
    assert one["reason"] == choices[0]["finish_reason"]
    if options:
        assert one["text"] == FORCED
    rows = choices[0]["logprobs"]["content"]
    assert [row["bytes"] for row in one["rows"]] == [row["bytes"] for row in rows]
    assert [row["token"] for row in one["rows"]] == [row["token"] for row in rows]
    # Each row belongs to its token: the bytes of all rows are the text, and of a stop token.
    joined = b"".join(bytes(row["bytes"]) for row in one["rows"]).decode(errors="replace")
    assert joined.removesuffix("<|im_end|>").rstrip("\ufffd") == one["text"].rstrip("\ufffd")


def test_every_choice_has_its_own_rows(smollm2_server):
    choices, streamed = chat(
        smollm2_server, "Hi", n=3, logprobs=True, max_tokens=12, regex=re.escape("a é 😀")
    )
    assert sorted(streamed) == [0, 1, 2]
    for index, one in streamed.items():
        assert one["text"] == choices[index]["message"]["content"] == "a é 😀"
        rows = choices[index]["logprobs"]["content"]
        assert [row["bytes"] for row in one["rows"]] == [row["bytes"] for row in rows]


@pytest.mark.parametrize("keep", [False, True], ids=["cut", "kept"])
@pytest.mark.parametrize("stop", ["中 b中é", "é 👩", "\u200d"])
def test_stop_strings_that_tokens_straddle(smollm2_server, stop, keep):
    options = {"regex": re.escape(FORCED), "stop": [stop, "中éX"], "no_stop_trim": keep}
    choices, streamed = chat(smollm2_server, "Hi", **options)
    expected = FORCED[: FORCED.index(stop)] + (stop if keep else "")
    assert choices[0]["message"]["content"] == expected
    assert streamed[0]["text"] == expected
    assert streamed[0]["reason"] == choices[0]["finish_reason"] == "stop"


def test_beginnings_of_stop_strings_come_out_in_the_end(smollm2_server):
    options = {"regex": re.escape(FORCED), "stop": ["é😀中 b中X", "👩\u200d👩", "."]}
    choices, streamed = chat(smollm2_server, "Hi", **options)
    assert choices[0]["message"]["content"] == streamed[0]["text"] == FORCED[:-1]


@pytest.mark.parametrize("interval", [1, 3])
def test_native_streams_with_any_interval(smollm2_server, interval):
    params = {"temperature": 0, "max_new_tokens": 32, "stream_interval": interval}
    params["regex"] = re.escape(FORCED)
    body = {"text": "Hi", "sampling_params": params, "return_logprob": True}
    expected = whole(smollm2_server, "/generate", body)
    chunks = events(smollm2_server, "/generate", body)
    assert chunks[-1]["text"] == expected["text"] == FORCED
    assert chunks[-1]["output_ids"] == expected["output_ids"]
    for before, after in zip(chunks, chunks[1:], strict=False):
        assert after["text"].startswith(before["text"])
    for chunk in chunks:
        rows = chunk["meta_info"]["output_token_logprobs"]
        assert [row[1] for row in rows] == chunk["output_ids"]


def test_completions(smollm2_server):
    body = {"model": "m", "prompt": "Once", "logprobs": 1, "echo": True, **GREEDY}
    body["regex"] = re.escape(FORCED)
    choice = whole(smollm2_server, "/v1/completions", body)["choices"][0]
    chunks = [event["choices"][0] for event in events(smollm2_server, "/v1/completions", body)]
    assert "".join(chunk["text"] for chunk in chunks) == choice["text"] == "Once" + FORCED
    tokens = [row for chunk in chunks for row in (chunk["logprobs"] or {}).get("tokens", [])]
    assert tokens == choice["logprobs"]["tokens"]


def test_ollama_streams_all_text(smollm2_server):
    for path, given in (
        ("/api/generate", {"prompt": "Once upon"}),
        ("/api/chat", {"messages": [{"role": "user", "content": "Hi"}]}),
    ):
        body = {"model": "m", "options": {"temperature": 0, "num_predict": 12}, **given}
        answer = whole(smollm2_server, path, {**body, "stream": False})
        chunks = events(smollm2_server, path, body)
        pick = (
            (lambda one: one["response"])
            if "prompt" in given
            else (lambda one: one["message"]["content"])
        )
        assert "".join(map(pick, chunks)) == pick(answer)
        assert [chunk["done"] for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Zürich 中"}}</tool_call>'
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"regex": re.escape("Sure. " + CALL)}, id="text before"),
        pytest.param({"regex": re.escape("No call: <tool"), "max_tokens": 20}, id="no call"),
        pytest.param({"tool_choice": "required", "max_tokens": 64}, id="forced"),
    ],
)
def test_tool_calls(smollm2_server, options):
    body = {"messages": [{"role": "user", "content": "Weather?"}], "model": "m", **GREEDY}
    body |= {"max_tokens": 64, "tools": [TOOL], **options}
    choice = whole(smollm2_server, "/v1/chat/completions", body)["choices"][0]
    text, reason, calls = "", None, {}
    for event in events(smollm2_server, "/v1/chat/completions", body):
        for one in event["choices"]:
            text += one["delta"].get("content") or ""
            reason = one["finish_reason"] or reason
            for call in one["delta"].get("tool_calls") or []:
                name, arguments = calls.get(call["index"], ("", ""))
                function = call["function"]
                calls[call["index"]] = (
                    name or function["name"],
                    arguments + (function["arguments"] or ""),
                )
    expected = [
        (call["function"]["name"], call["function"]["arguments"])
        for call in choice["message"].get("tool_calls") or []
    ]
    assert [calls[index] for index in sorted(calls)] == expected
    assert text == (choice["message"]["content"] or "")
    assert reason == choice["finish_reason"]
    if "regex" in options:
        assert bool(expected) == (CALL in options["regex"].replace("\\", ""))
