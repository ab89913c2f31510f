"""An error that opens a stream becomes an HTTP error; anything else passes untouched."""

from __future__ import annotations

import asyncio
import json

import pytest
from starlette.responses import JSONResponse, StreamingResponse

from sglang_ascend.frontend.first_chunk import error_before_stream


def refuse(status, message):
    return JSONResponse({"error": message}, status)


def opened(chunks, count=1):
    """What becomes of a stream of these chunks; an exception among them is raised there."""
    closed = []

    async def body():
        try:
            for chunk in chunks:
                if isinstance(chunk, Exception):
                    raise chunk
                yield chunk
        finally:
            closed.append(True)

    async def run():
        response = StreamingResponse(body(), media_type="text/event-stream")
        result = await error_before_stream(response, refuse, count)
        if isinstance(result, StreamingResponse):
            return result.status_code, [chunk async for chunk in result.body_iterator]
        return result.status_code, json.loads(result.body)["error"]

    result = asyncio.run(run())
    assert closed == ([True] if chunks else closed)
    return result


TEXT = b'data: {"text": "a", "meta_info": {"finish_reason": null}}\n\n'
DONE = b"data: [DONE]\n\n"


def event(**fields) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


@pytest.mark.parametrize(
    ("chunks", "count", "expected"),
    [
        ([TEXT, DONE], 1, (200, [TEXT, DONE])),
        ([TEXT], 2, (200, [TEXT])),
        ([], 1, (200, [])),
        ([DONE], 1, (200, [DONE])),
        ([b"\xf0\x9f", "x"], 2, (200, [b"\xf0\x9f", "x"])),
        ([ValueError("n = 0")], 1, (400, "n = 0")),
        ([event(error={"message": "no", "code": 400}), DONE], 1, (400, "no")),
        ([event(error={"message": "busy", "code": 503})], 1, (503, "busy")),
        ([event(error={"message": "odd", "code": "x"})], 1, (500, "odd")),
        ([TEXT, event(error={"type": "invalid_request_error", "message": "m"})], 2, (400, "m")),
        (
            [
                event(
                    meta_info={
                        "finish_reason": {"type": "abort", "status_code": 400, "message": "z"}
                    }
                )
            ],
            1,
            (400, "z"),
        ),
    ],
)
def test_streams(chunks, count, expected):
    assert opened(chunks, count) == expected


def test_a_later_error_stays_in_the_stream():
    late = event(error={"message": "late", "code": 400})
    assert opened([TEXT, late]) == (200, [TEXT, late])


def test_an_abort_without_status_is_an_answer():
    aborted = event(meta_info={"finish_reason": {"type": "abort", "message": "by user"}})
    assert opened([aborted]) == (200, [aborted])


def test_other_answers_pass():
    answer = JSONResponse({}, 418)
    assert asyncio.run(error_before_stream(answer, refuse)) is answer
