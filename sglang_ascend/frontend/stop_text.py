"""Hold back text that may be the beginning of a stop string until that is decided."""

from __future__ import annotations

from collections.abc import Iterable


class StopText:
    """Filters one sequence's text on its way to the client.

    Args:
        stops: the stop strings of the request.
        keep: whether a matched stop string stays in the text.
    """

    def __init__(self, stops: Iterable[str], keep: bool = False):
        self._stops = [stop for stop in stops if stop]
        self._longest = max(map(len, self._stops), default=0)
        self._keep = keep
        self._held = ""

    def push(self, text: str) -> str:
        """Take text and return what cannot be part of a stop string any more."""
        text = self._held + text
        start = self._first_possible_stop(text)
        self._held = text[start:]
        return text[:start]

    def finish(self, text: str, matched: object) -> str:
        """Take the last text, which ends with the stop string ``matched`` if one ended it."""
        text, self._held = self._held + text, ""
        if not self._keep and matched in self._stops and text.endswith(matched):
            return text[: -len(matched)]
        return text

    def _first_possible_stop(self, text: str) -> int:
        """Where the longest end of ``text`` begins that some stop string begins with."""
        for start in range(max(0, len(text) - self._longest), len(text)):
            end = text[start:]
            if any(stop.startswith(end) for stop in self._stops):
                return start
        return len(text)
