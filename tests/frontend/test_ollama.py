"""An Ollama stream brings all text, and the option seed arrives."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from sglang.srt.entrypoints.ollama.serving import OllamaServing

from sglang_ascend.frontend import ollama

PIECES = ["He", "llo", "!"]


def manager(incremental: bool):
    async def generate_request(request, raw_request):
        text = ""
        for i, piece in enumerate(PIECES):
            text += piece
            reason = {"type": "length"} if i == len(PIECES) - 1 else None
            yield {"text": piece if incremental else text, "meta_info": {"finish_reason": reason}}

    return SimpleNamespace(
        generate_request=generate_request, incremental_streaming_output=incremental
    )


def streamed(method: str, incremental: bool, hooked: bool) -> tuple[str, list[bool]]:
    serving = OllamaServing(manager(incremental))
    original = getattr(OllamaServing, method)

    async def run():
        args = (serving, None, None, "m")
        response = await (ollama.stream(original, *args) if hooked else original(*args))
        return [json.loads(chunk) async for chunk in response.body_iterator]

    chunks = asyncio.run(run())
    texts = [c["response"] if "response" in c else c["message"]["content"] for c in chunks]
    return "".join(texts), [chunk["done"] for chunk in chunks]


@pytest.mark.parametrize("method", ["_stream_chat_response", "_stream_generate_response"])
@pytest.mark.parametrize("incremental", [False, True])
def test_the_last_piece_arrives(method, incremental):
    assert streamed(method, incremental, hooked=True) == ("Hello!", [False] * 3 + [True])


@pytest.mark.parametrize("method", ["_stream_chat_response", "_stream_generate_response"])
def test_upstream_loses_it(method):
    """Why the seams are there."""
    assert streamed(method, incremental=False, hooked=False)[0] == "Hello"


def test_the_seed_has_the_name_of_a_sampling_parameter():
    params = OllamaServing(None)._convert_options_to_sampling_params({"seed": 7})
    assert ollama.rename_seed(params) == {"sampling_seed": 7, "max_new_tokens": 2048}
