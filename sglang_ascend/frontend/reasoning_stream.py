"""Where reasoning begins does not depend on how a stream is cut.

SGLang looks for the opening token in whatever a chunk holds: text before it is an answer or
reasoning according to the cut, and whole answers have a third rule. Here text before the token is
part of the answer, unless the model reasons from the start; then the token is dropped. Reasoning
happens once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any


def increment(original: Callable, detector: Any, text: str) -> Any:
    """Around ``BaseReasoningFormatDetector.parse_streaming_increment(self, new_text)``.

    One character at a time until the opening token has come or cannot come any more.
    """
    from sglang.srt.parser.reasoning_parser import StreamingParseResult

    reasoning, normal = [], []
    while True:
        head = text if detector.stripped_think_start else text[:1]
        text = text[len(head) :]
        was_reasoning = detector._in_reasoning
        result = original(detector, head)
        reasoning.append(result.reasoning_text)
        normal.append(result.normal_text)
        if was_reasoning and not detector._in_reasoning:
            detector.stripped_think_start = True
        if not text:
            return StreamingParseResult("".join(normal), "".join(reasoning))


def whole(original: Callable, detector: Any, text: str) -> Any:
    """Around ``BaseReasoningFormatDetector._detect_and_parse_impl(self, text)``.

    What the stream of the text gives, for the formats that stream by the base class.
    """
    from sglang.srt.parser.reasoning_parser import (
        BaseReasoningFormatDetector,
        StreamingParseResult,
    )

    streams_by_base = all(
        getattr(type(detector), name) is getattr(BaseReasoningFormatDetector, name)
        for name in ("parse_streaming_increment", "_parse_streaming_increment_impl", "finish")
    )
    # With force_nonempty_content, streams and whole answers differ by design.
    if detector._force_nonempty_content or not streams_by_base:
        return original(detector, text)
    one = copy.copy(detector)
    parts = one.parse_streaming_increment(text), one.finish()
    return StreamingParseResult(
        "".join(part.normal_text for part in parts),
        "".join(part.reasoning_text for part in parts),
    )
