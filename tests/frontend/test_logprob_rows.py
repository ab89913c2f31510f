"""A streamed chat carries one log-probability row per token, whatever the text does."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from sglang.srt.entrypoints.openai import serving_chat

from sglang_ascend.frontend.logprob_rows import keep_rows

UPSTREAM = serving_chat.OpenAIServingChat._generate_stream_content


@pytest.fixture
def serving(monkeypatch):
    """SGLang's chat handler with what its plain streaming path reads."""
    one = serving_chat.OpenAIServingChat.__new__(serving_chat.OpenAIServingChat)
    one.reasoning_parser = one.tool_call_parser = None
    monkeypatch.setattr(one, "_encoding_output", lambda: None, raising=False)
    settings = SimpleNamespace(incremental_streaming_output=False)
    monkeypatch.setattr(serving_chat, "get_serving", lambda: settings)
    return one


def rows(serving, generate, texts: list[str]) -> tuple[str, list]:
    """Text and rows of a stream whose text grows like this, one token a step."""
    offsets: dict[int, int] = {}
    request = SimpleNamespace(
        model="m",
        separate_reasoning=False,
        tools=None,
        tool_choice="none",
        _response_parser_json_response_format=False,
    )

    async def run():
        for i, text in enumerate(texts):
            async for chunk in generate(
                serving,
                content={"text": text, "meta_info": {"id": "r"}},
                index=0,
                request=request,
                created=0,
                stream_offsets=offsets,
                reasoning_parser_dict={},
                parser_dict={},
                has_tool_calls={},
                choice_logprobs={"content": [{"token": str(i)}]},
                finish_reason_type=None,
                continuous_usage_stats=False,
                prompt_tokens={},
                reasoning_tokens={},
                completion_tokens={},
            ):
                yield json.loads(chunk.removeprefix("data: "))["choices"][0]

    async def collect():
        return [choice async for choice in run()]

    choices = asyncio.run(collect())
    found = [row for one in choices for row in (one["logprobs"] or {}).get("content", [])]
    return "".join(one["delta"].get("content") or "" for one in choices), found


#: The second token is half a character, the last one a stop token.
TEXTS = ["a", "a", "aé", "aé"]


def test_every_token_has_its_row(serving):
    text, found = rows(serving, lambda *a, **k: keep_rows(UPSTREAM, *a, **k), TEXTS)
    assert text == "aé"
    assert found == [{"token": str(i)} for i in range(4)]


def test_upstream_drops_rows(serving):
    """Why the seam is there."""
    text, found = rows(serving, UPSTREAM, TEXTS)
    assert text == "aé"
    assert len(found) == 2
