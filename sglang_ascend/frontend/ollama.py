"""The Ollama entrance: refusals with status 400, the seed, and the last piece of a stream."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from typing import Any

from sglang_ascend.frontend.first_chunk import error_before_stream


async def handle(original: Callable, serving: Any, *args: Any, **kwargs: Any) -> Any:
    """Around ``OllamaServing.handle_chat`` and ``handle_generate``, which catch no error."""
    from starlette.responses import JSONResponse

    def refuse(status: int, message: str) -> Any:
        return JSONResponse({"error": message}, status)

    try:
        return await error_before_stream(await original(serving, *args, **kwargs), refuse)
    except ValueError as error:
        return refuse(getattr(error, "status_code", 400), str(error))


def rename_seed(params: dict, *_: Any, **__: Any) -> dict:
    """After ``OllamaServing._convert_options_to_sampling_params``: SGLang's name of the seed."""
    if "seed" in params:
        params["sampling_seed"] = params.pop("seed")
    return params


async def stream(original: Callable, serving: Any, *args: Any, **kwargs: Any) -> Any:
    """Around ``_stream_chat_response`` and ``_stream_generate_response``.

    They send no text with the chunk that ends a stream, and take every chunk's text for all text
    so far. The manager that they see here keeps to both.
    """
    adapted = copy.copy(serving)
    adapted.tokenizer_manager = _WholeTextThenEnd(serving.tokenizer_manager)
    return await original(adapted, *args, **kwargs)


class _WholeTextThenEnd:
    """A tokenizer manager whose stream ends with a chunk that adds no text."""

    def __init__(self, manager: Any):
        self._manager = manager

    async def generate_request(self, request: Any, raw_request: Any) -> AsyncIterator[dict]:
        text = ""
        async for chunk in self._manager.generate_request(request, raw_request):
            text = (
                text + chunk["text"]
                if self._manager.incremental_streaming_output
                else (chunk["text"])
            )
            chunk = {**chunk, "text": text}
            if chunk["meta_info"].get("finish_reason") is not None:
                yield {**chunk, "meta_info": {**chunk["meta_info"], "finish_reason": None}}
            yield chunk
