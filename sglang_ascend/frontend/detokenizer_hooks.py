"""Where the incremental detokenizer and the stop strings meet SGLang.

The detokenizer process cuts a finished text behind its stop string; the HTTP process, which knows
the stop strings from the start, holds back what may belong to one and removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sglang_ascend.frontend.incremental_detokenizer import IncrementalDetokenizer
from sglang_ascend.frontend.stop_text import StopText

#: Tokens that the scheduler decodes in each step to find a stop string, at most so many more than
#: SGLang has it; its stop patterns have the same bound.
_WIDEST_WINDOW = 256


def decode_batch(manager: Any, batch: Any) -> list[str]:
    """Replaces ``DetokenizerManager._decode_batch_token_id_output(self, recv_obj)``.

    Args:
        batch: a ``BatchTokenIDOutput``. A request's first message carries the last prompt tokens,
            ``read_offsets`` of them, before its output tokens.

    Returns:
        The new text of each request, up to the end of the stop string where one matched.
    """
    return [_decode_one(manager, batch, i) for i in range(len(batch.rids))]


def _decode_one(manager: Any, batch: Any, i: int) -> str:
    rid, reason = batch.rids[i], batch.finished_reasons[i]
    ids = manager._clamp_decode_ids(batch.decode_ids[i], manager.vocab_size)
    state = manager.decode_status.get(rid)
    if state is None:
        offset = batch.read_offsets[i]
        decode = decoder(manager.tokenizer, batch.skip_special_tokens[i])
        state = _Sequence(decode, ids[:offset])
        manager.decode_status[rid] = state
        ids = ids[offset:]
    if reason is None:
        return state.push(ids)
    del manager.decode_status[rid]
    if ids:
        ids = manager.trim_matched_stop(ids, reason, batch.no_stop_trim[i])
    matched = reason.get("matched")
    return state.finish(ids, matched if isinstance(matched, str) else None)


class _Sequence:
    """One request's text so far."""

    def __init__(self, decode: Callable[[Sequence[int]], str], context: list[int]):
        self._detokenizer = IncrementalDetokenizer(decode, context)
        self._sent: list[str] = []

    def push(self, ids: list[int]) -> str:
        text = self._detokenizer.push(ids)
        self._sent.append(text)
        return text

    def finish(self, ids: list[int], stop: str | None) -> str:
        """The last text; it ends behind ``stop`` if that was completed by the last token."""
        before = self._detokenizer.push(ids[:-1])
        last = self._detokenizer.push(ids[-1:]) + self._detokenizer.finish()
        if not stop:
            return before + last
        sent = "".join(self._sent)
        text = sent + before + last
        # A stop string that ended before the last token would have ended the sequence there.
        found = text.find(stop, max(0, len(sent) + len(before) - len(stop) + 1))
        end = found + len(stop) if found >= 0 else len(text)
        return text[len(sent) : end]


def decoder(tokenizer: Any, skip_special_tokens: bool) -> Callable[[Sequence[int]], str]:
    """Decoding without the extras that change text already given out, such as space clean-up."""
    if getattr(tokenizer, "is_fast", False):
        decode = tokenizer.backend_tokenizer.decode
        return lambda ids: decode(ids, skip_special_tokens=skip_special_tokens)
    from sglang.srt.utils.patch_tokenizer import decode_without_hf_kwargs

    return partial(decode_without_hf_kwargs, tokenizer, skip_special_tokens=skip_special_tokens)


def hold_back_stops(manager: Any, batch: Any) -> None:
    """Before ``TokenizerManager._handle_batch_output(self, recv_obj)``: texts, in place."""
    texts = getattr(batch, "output_strs", None)
    if not texts:
        return
    for i, rid in enumerate(batch.rids):
        state = manager.rid_to_state.get(rid)
        if state is None or texts[i] is None:
            continue
        filter_ = _stop_filter(manager, state)
        reason = batch.finished_reasons[i]
        if reason is None:
            texts[i] = filter_.push(texts[i])
        else:
            texts[i] = filter_.finish(texts[i], reason.get("matched"))


def _stop_filter(manager: Any, state: Any) -> StopText:
    filter_ = getattr(state, "stop_text", None)
    if filter_ is None:
        params = {**(manager.preferred_sampling_params or {}), **state.obj.sampling_params}
        stops = params.get("stop") or []
        filter_ = StopText(
            [stops] if isinstance(stops, str) else stops, bool(params.get("no_stop_trim"))
        )
        state.stop_text = filter_
    return filter_


def widen_stop_window(_: None, params: Any, *__: Any, **___: Any) -> None:
    """After ``SamplingParams.normalize(self, tokenizer)``.

    The scheduler looks for stop strings in the last tokens only, as many as the tokenizer makes
    of the string. A model may write it with more tokens, up to one a byte.
    """
    longest = max((len(stop.encode()) for stop in params.stop_strs), default=0)
    params.stop_str_max_len = max(params.stop_str_max_len, min(longest, _WIDEST_WINDOW))
