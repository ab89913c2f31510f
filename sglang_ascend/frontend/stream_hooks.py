"""Streaming entrances answer a refused request with an HTTP error, as their others do."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from sglang_ascend.frontend.first_chunk import error_before_stream
from sglang_ascend.frontend.refusal_hooks import check_before_generating


async def native(original: Callable, request: Any, raw_request: Any) -> Any:
    """Around ``http_server.serve_generate_request(obj, request)``: ``/generate``."""
    from starlette.responses import JSONResponse

    def refuse(status: int, message: str) -> Any:
        return JSONResponse({"error": {"message": message, "code": status}}, status)

    return await error_before_stream(await original(request, raw_request), refuse)


async def openai(original: Callable, serving: Any, *args: Any, **kwargs: Any) -> Any:
    """Around ``OpenAIServingChat`` and ``OpenAIServingCompletion._handle_streaming_request``."""

    def refuse(status: int, message: str) -> Any:
        name = HTTPStatus(status).phrase.replace(" ", "")
        return serving.create_error_response(message, name, status)

    return await error_before_stream(await original(serving, *args, **kwargs), refuse)


async def anthropic(original: Callable, serving: Any, *args: Any, **kwargs: Any) -> Any:
    """Around ``AnthropicServing._handle_streaming``: ``/v1/messages``.

    Its streams open with ``message_start`` even where an error follows, hence two chunks.
    """

    def refuse(status: int, message: str) -> Any:
        kind = "invalid_request_error" if status < 500 else "api_error"
        return serving._error_response(status_code=status, error_type=kind, message=message)

    return await error_before_stream(await original(serving, *args, **kwargs), refuse, chunks=2)


def responses(serving: Any, request_id: str, prompt: Any, adapted: Any, *_: Any, **__: Any) -> None:
    """Before ``OpenAIServingResponses._generate_with_builtin_tools(self, id, prompt, adapted)``.

    Called where a ``ValueError`` becomes a 400, before the stream's first event is made.
    """
    manager = serving.tokenizer_manager
    check_before_generating(manager, adapted)
    if adapted.input_ids is not None:
        manager._validate_one_request(adapted, adapted.input_ids)
