"""Streamed chat answers carry the log-probabilities of every token."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any


async def keep_rows(original: Callable, serving: Any, **kwargs: Any) -> AsyncIterator[str]:
    """Around ``OpenAIServingChat._generate_stream_content(self, *, content, index, ...)``.

    A token that adds no text yet (part of a character, a stop token, a held-back stop string) makes
    no chunk, and SGLang drops its log-probabilities. They go out in a chunk with empty text.
    """
    rows = kwargs["choice_logprobs"]
    carried = False
    async for chunk in original(serving, **kwargs):
        carried = carried or (rows is not None and _has_rows(chunk))
        yield chunk
    if rows is not None and not carried:
        from sglang.srt.entrypoints.openai.sse_utils import build_sse_content

        yield build_sse_content(
            chunk_id=kwargs["content"]["meta_info"]["id"],
            created=kwargs["created"],
            model=kwargs["request"].model,
            index=kwargs["index"],
            content="",
            logprobs=rows,
        )


def _has_rows(chunk: str) -> bool:
    data = chunk.removeprefix("data: ").strip()
    choices = json.loads(data).get("choices") or [] if data.startswith("{") else []
    return any(choice.get("logprobs") for choice in choices)
