"""Where the collected tool calls meet SGLang's parsers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sglang_ascend.frontend.tool_stream import ToolStream, markers_of, text_before


def push(original: Callable, parser: Any, chunk: str) -> tuple[str, list]:
    """Around ``FunctionCallParser.parse_stream_chunk(self, chunk_text)``."""
    if _is_left_alone(parser):
        return original(parser, chunk)
    return _stream_of(parser).push(chunk), []


def finish(original: Callable, parser: Any) -> tuple[str, list]:
    """Around ``FunctionCallParser.parse_stream_end(self)``."""
    if _is_left_alone(parser):
        return original(parser)
    text, calls = _stream_of(parser).finish()
    return text, _streamed(calls)


def whole(original: Callable, parser: Any, text: str, **options: Any) -> tuple[str, list]:
    """Around ``FunctionCallParser.parse_non_stream(self, full_text)``."""
    normal, calls = original(parser, text, **options)
    return text_before(text, normal, markers_of(parser.detector)), calls


def push_json(parser: Any, chunk: str, tools: list) -> Any:
    """Replaces ``JsonArrayParser.parse_streaming_increment``: calls that a grammar forces."""
    from sglang.srt.function_call.core_types import StreamingParseResult

    parser.collected = getattr(parser, "collected", "") + chunk
    return StreamingParseResult()


def finish_json(parser: Any, tools: list) -> Any:
    """Replaces ``JsonArrayParser.finish``, by the rules that SGLang applies to whole answers."""
    from sglang.srt.function_call.core_types import StreamingParseResult, ToolCallItem

    text = getattr(parser, "collected", "")
    try:
        calls = json.loads(text)
    except ValueError:
        return StreamingParseResult(normal_text=text)
    calls = [calls] if isinstance(calls, dict) else calls
    if not isinstance(calls, list) or not all(
        isinstance(call, dict) and "name" in call for call in calls
    ):
        return StreamingParseResult(normal_text=text)
    items = [
        ToolCallItem(
            tool_index=i,
            name=call["name"],
            parameters=json.dumps(call.get("parameters", {}), ensure_ascii=False),
        )
        for i, call in enumerate(calls)
    ]
    return StreamingParseResult(calls=_streamed(items))


def flush_at_any_end(*args: Any, **kwargs: Any) -> tuple[tuple, dict]:
    """Before ``OpenAIServingChat._process_tool_call_stream``: an aborted stream ends as well."""
    content = kwargs["content"] if "content" in kwargs else args[4]
    ended = content["meta_info"].get("finish_reason") is not None
    return args, {**kwargs, "flush": ended}


def _is_left_alone(parser: Any) -> bool:
    """No tools, or the one format whose streaming parser also defines the whole answer."""
    from sglang.srt.parser.response_template import ResponseTemplateToolDetector

    if isinstance(parser.detector, ResponseTemplateToolDetector):
        return True
    return not parser.tools and not parser.detector.parses_without_tools()


def _stream_of(parser: Any) -> ToolStream:
    stream = getattr(parser, "tool_stream", None)
    if stream is None:

        def parse(text: str) -> tuple[str, list]:
            return parser.parse_non_stream(text) if parser.has_tool_call(text) else (text, [])

        stream = ToolStream(parse, markers_of(parser.detector))
        parser.tool_stream = stream
    return stream


def _streamed(calls: list) -> list:
    """Calls as streams carry them: numbered in order, the name first, then the arguments."""
    from sglang.srt.function_call.core_types import ToolCallItem

    items = []
    for i, call in enumerate(calls):
        items.append(ToolCallItem(tool_index=i, name=call.name, parameters=""))
        if call.parameters:
            items.append(ToolCallItem(tool_index=i, parameters=call.parameters))
    return items
