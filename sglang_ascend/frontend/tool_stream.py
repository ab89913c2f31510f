"""Tool calls from a stream of text, the same for every way to cut it into chunks.

SGLang's streaming parsers act on each chunk as it comes: a call that arrives within one chunk, or
a marker that is cut, gives other calls than the whole text does. Here text flows while no call has
begun; from the first marker on it is collected, and the parser for whole texts decides at the end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)

#: Where a call begins, by name of SGLang's detector class: attributes that hold the markers. A
#: text without them has no calls in these formats. Texts of other formats flow at their end only.
_MARKERS: dict[str, tuple[str, ...]] = {
    "HermesDetector": ("bot_token",),
    "Qwen25Detector": ("bot_token",),
    "Qwen3CoderDetector": ("tool_call_start_token",),
    "DeepSeekV3Detector": ("bot_token",),
    "DeepSeekV31Detector": ("bot_token",),
    "DeepSeekV32Detector": ("bot_token", "invoke_start_token"),
    "DeepSeekV4Detector": ("bot_token", "invoke_start_token"),
    "DeepSeekV41Detector": ("bot_token", "invoke_start_token"),
    "Glm4MoeDetector": ("bot_token",),
    "Glm47MoeDetector": ("bot_token",),
    "KimiK2Detector": ("bot_token",),
    "MistralDetector": ("_tool_calls_marker",),
}


def markers_of(detector: Any) -> tuple[str, ...]:
    """The texts with which a tool call begins, empty where that is not known."""
    return tuple(getattr(detector, name) for name in _MARKERS.get(type(detector).__name__, ()))


def text_before(text: str, normal: str, markers: tuple[str, ...]) -> str:
    """``normal``, what a parser left of ``text``, with the text before the first call as written.

    Parsers strip it on both sides if a call follows, which a stream cannot know in time. Only the
    white space between text and call goes, in streams and whole answers alike.
    """
    start = _first(text, markers)
    before = text[:start].strip()
    if start == len(text) or not normal.lstrip().startswith(before):
        return normal
    return text[:start].rstrip() + normal.lstrip()[len(before) :]


class ToolStream:
    """Collects one stream for a parser of whole texts.

    Args:
        parse: text and calls of a whole output; raises on malformed ones.
        markers: what a call begins with; nothing flows early if empty.
    """

    def __init__(self, parse: Callable[[str], tuple[str, list]], markers: tuple[str, ...]):
        self._parse = parse
        self._markers = markers
        self._text = ""
        self._sent = 0

    def push(self, chunk: str) -> str:
        """Take text and return what no call can change any more."""
        self._text += chunk
        if not self._markers:
            return ""
        rest = self._text[self._sent :]
        piece = rest[: _possible_start(rest, self._markers)].rstrip()
        self._sent += len(piece)
        return piece

    def finish(self) -> tuple[str, list]:
        """The rest of the text, and the calls."""
        try:
            normal, calls = self._parse(self._text)
        except Exception as error:  # SGLang, too, returns a text that it cannot parse
            logger.warning("Tool calls could not be parsed: %s", error)
            normal, calls = self._text, []
        if not normal.startswith(self._text[: self._sent]):
            logger.error("Text of %d characters before a tool call was changed.", self._sent)
            return "", calls
        return normal[self._sent :], calls


def _first(text: str, markers: tuple[str, ...]) -> int:
    return min((at for at in map(text.find, markers) if at >= 0), default=len(text))


def _possible_start(text: str, markers: tuple[str, ...]) -> int:
    """Where the first marker begins, or what may become one at the end of ``text``."""
    start = _first(text, markers)
    if start < len(text):
        return start
    longest = max(map(len, markers))
    for at in range(max(0, len(text) - longest + 1), len(text)):
        if any(marker.startswith(text[at:]) for marker in markers):
            return at
    return len(text)
