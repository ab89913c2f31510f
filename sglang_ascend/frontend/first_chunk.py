"""Turn an error that a stream opens with into an HTTP error.

A streaming answer has status 200 as soon as its headers are sent. Waiting for the first chunks
before that costs the client nothing, as it gets no text earlier, and lets a refused request fail
the way a non-streaming one does.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import Response, StreamingResponse


async def error_before_stream(
    response: Any, refuse: Callable[[int, str], Response], chunks: int = 1
) -> Any:
    """Answer with an error where the stream's first chunks are one.

    Args:
        response: what the handler made; anything but a ``StreamingResponse`` passes through.
        refuse: makes the error answer from an HTTP status and a message.
        chunks: how many chunks to look at.
    """
    if not isinstance(response, StreamingResponse):
        return response
    body = aiter(response.body_iterator)
    head: list[str | bytes] = []
    try:
        while len(head) < chunks:
            head.append(await anext(body))
    except StopAsyncIteration:
        pass
    except ValueError as error:
        return refuse(getattr(error, "status_code", 400), str(error))
    for chunk in head:
        found = _error_in(chunk)
        if found is not None:
            if hasattr(body, "aclose"):
                await body.aclose()
            return refuse(*found)
    response.body_iterator = _chain(head, body)
    return response


async def _chain(head: list, body: AsyncIterator) -> AsyncIterator:
    for chunk in head:
        yield chunk
    async for chunk in body:
        yield chunk


def _error_in(chunk: str | bytes) -> tuple[int, str] | None:
    """HTTP status and message of an error event, or of a request that the scheduler aborted."""
    text = chunk.decode(errors="replace") if isinstance(chunk, bytes) else chunk
    data = text.partition("data: ")[2].strip()
    if not data.startswith("{"):
        return None
    event = json.loads(data)
    error = event.get("error")
    if isinstance(error, dict):
        code = error.get("code")
        known = isinstance(code, int) and 400 <= code < 600
        # Anthropic's events carry a type and no code.
        fallback = 400 if error.get("type") == "invalid_request_error" else 500
        return (code if known else fallback), str(error.get("message"))
    reason = (event.get("meta_info") or {}).get("finish_reason") or {}
    code = reason.get("status_code")
    if reason.get("type") == "abort" and isinstance(code, int) and 400 <= code < 600:
        return code, str(reason.get("message"))
    return None
