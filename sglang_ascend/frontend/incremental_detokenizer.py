"""Text from tokens that arrive in pieces, the same for every way to cut them into pieces.

A token may hold part of a character, and how a token reads may depend on the one before it (the
space that SentencePiece puts before a word). So tokens are decoded behind the one that completed
the last text, and text is given out once later tokens cannot change it. Tokens are taken one by
one, whatever the pieces: the cuts cannot matter.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Sequence

#: What decoders write for bytes that are no character, or not yet one.
REPLACEMENT = "\ufffd"

#: Bytes that an incomplete UTF-8 character has at most. Decoders write up to one ``REPLACEMENT``
#: for each, and what stands before them is certain.
_UNDECIDED = 3

#: Tokens that are decoded together at most, where text never ends with a whole character.
_MAX_PENDING = 16

Decode = Callable[[Sequence[int]], str]


class IncrementalDetokenizer:
    """Turns tokens into text as they come.

    Args:
        decode: text of a list of token ids, bytes that are no character as ``REPLACEMENT``.
        context: the last tokens before the first one; their text is not given out.
    """

    def __init__(self, decode: Decode, context: Sequence[int] = ()):
        self._decode = decode
        self._set_context(list(context))

    def push(self, ids: Sequence[int]) -> str:
        """Take tokens and return the text that is certain by now and was not returned before."""
        return "".join(map(self._push_one, ids))

    def finish(self) -> str:
        """Return the rest of the text, an incomplete character as ``REPLACEMENT``."""
        rest = self._pending_text()[self._given :] if self._pending else ""
        self._set_context([])
        return rest

    def _set_context(self, ids: list[int]) -> None:
        self._context = ids
        self._context_text = self._decode(ids) if ids else ""
        self._pending: list[int] = []
        self._given = 0  # characters of the pending text that were given out

    def _push_one(self, token: int) -> str:
        self._pending.append(token)
        text = self._pending_text()
        if not text:
            self._drop_invisible()
            return ""
        certain = len(text)
        if text.endswith(REPLACEMENT):
            certain = max(len(text.rstrip(REPLACEMENT)), certain - _UNDECIDED)
        piece = text[self._given : certain]
        self._given = max(self._given, certain)
        if certain == len(text):
            self._set_context(self._pending)
        elif len(self._pending) >= _MAX_PENDING:
            self._shorten(text[self._given :])
        return piece

    def _drop_invisible(self) -> None:
        """Forget pending tokens that show nothing, such as special tokens that are skipped.

        Not a space that shows nothing because decoders strip the first one, nor a byte that only
        continues the context's incomplete character.
        """
        visible = self._context_text and not self._context_text.endswith(REPLACEMENT)
        if visible or len(self._pending) >= _MAX_PENDING:
            self._pending = []

    def _shorten(self, rest: str) -> None:
        """Forget the older pending tokens, unless that changes ``rest``, the text still held."""
        recent = self._pending[-_MAX_PENDING // 2 :]
        text = self._decode(recent)
        if text.endswith(rest):
            self._set_context([])
            self._pending, self._given = recent, len(text) - len(rest)

    def _pending_text(self) -> str:
        """Text of the pending tokens behind the context."""
        if not self._context:
            return self._decode(self._pending)
        both = self._decode(self._context + self._pending)
        shared = len(os.path.commonprefix((both, self._context_text)))
        if shared < len(self._context_text.rstrip(REPLACEMENT)):
            # The context reads differently now: byte-fallback decoders turn a whole run of byte
            # tokens into REPLACEMENT when its end is incomplete.
            return self._decode(self._pending)
        return both[shared:]
