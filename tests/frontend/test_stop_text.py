"""No part of a stop string reaches the client, and nothing else is lost."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.sampling.sampling_params import SamplingParams

from sglang_ascend.frontend.detokenizer_hooks import (
    decode_batch,
    hold_back_stops,
    widen_stop_window,
)
from sglang_ascend.frontend.stop_text import StopText
from tests.frontend.detokenizer_bench import UPSTREAM, stream
from tests.frontend.tokenizers_under_test import byte_fallback, byte_level

TEXT = st.text(st.sampled_from("ab中é"), max_size=24)
STOPS = st.lists(st.text(st.sampled_from("ab中é"), min_size=1, max_size=5), min_size=1, max_size=3)


@given(text=TEXT, stops=STOPS, data=st.data(), keep=st.booleans())
@settings(max_examples=500, deadline=None)
def test_every_partition_of_the_text(text, stops, data, keep):
    """With and without a match at the end, what was sent is a prefix of the final text."""
    matched = data.draw(st.sampled_from([None, *stops]))
    whole = text + (matched or "")
    ends = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    pieces = [whole[a:b] for a, b in zip([0, *ends], [*ends, len(whole)], strict=True)]
    expected = whole if matched is None or keep else text
    one = StopText(stops, keep)
    sent = ""
    for piece in pieces[:-1]:
        sent += one.push(piece)
        assert expected.startswith(sent)
    assert sent + one.finish(pieces[-1], matched) == expected


def test_text_is_not_held_longer_than_needed():
    one = StopText(["STOP", "Tea"])
    assert one.push("a S") == "a "
    assert one.push("T") == ""
    assert one.push("e") == "S"
    assert one.push("x") == "Tex"
    assert one.push("STO") == ""
    assert one.finish("!", None) == "STO!"


def test_without_stop_strings_text_passes_unchanged():
    one = StopText([""])
    assert one.push("abc") == "abc"
    assert one.finish("d", "d") == "d"


@pytest.mark.parametrize("tokenizer", [byte_level(), byte_fallback()], ids=["level", "fallback"])
@given(data=st.data(), keep=st.booleans())
@settings(max_examples=150, deadline=None)
def test_both_seams_for_every_partition_of_the_tokens(tokenizer, data, keep):
    """The scheduler ends a sequence at the first token that completes a stop string."""
    ids = data.draw(st.lists(st.integers(4, len(tokenizer) - 1), min_size=1, max_size=30))
    text = tokenizer.decode(ids)
    start = data.draw(st.integers(0, max(0, len(text) - 1)))
    stop = text[start : start + data.draw(st.integers(1, 5))] or "zz"
    ids, matched = _until(tokenizer, ids, stop)
    reason = {"type": "stop", "matched": stop} if matched else {"type": "length"}
    # The message that ends a sequence carries the token that ended it.
    ends = sorted(data.draw(st.lists(st.integers(0, len(ids) - 1), max_size=6)))
    cut = [ids[a:b] for a, b in zip([0, *ends], [*ends, len(ids)], strict=True)]
    whole = _client(tokenizer, [ids], reason, [stop], keep)
    assert _client(tokenizer, cut, reason, [stop], keep) == whole
    text = tokenizer.decode(ids)
    if matched and "\ufffd" not in text:
        assert whole == text[: text.index(stop)] + (stop if keep else "")


def _until(tokenizer, ids, stop):
    for end in range(1, len(ids) + 1):
        if stop in tokenizer.decode(ids[:end]):
            return ids[:end], True
    return ids, False


def _client(tokenizer, pieces, reason, stops, keep) -> str:
    """Text that a client gets whose tokens take the way of both processes."""
    texts = stream(decode_batch, tokenizer, pieces, reason, no_stop_trim=keep)
    state = SimpleNamespace(
        obj=SimpleNamespace(sampling_params={"stop": stops, "no_stop_trim": keep})
    )
    manager = SimpleNamespace(rid_to_state={"r": state}, preferred_sampling_params=None)
    sent = ""
    for i, text in enumerate(texts):
        last = i == len(texts) - 1
        batch = SimpleNamespace(
            rids=["r", "gone"],
            output_strs=[text, "x"],
            finished_reasons=[reason if last else None, None],
        )
        hold_back_stops(manager, batch)
        assert batch.output_strs[1] == "x"
        sent += batch.output_strs[0]
    return sent


def test_stop_strings_of_the_server_hold_as_well():
    state = SimpleNamespace(obj=SimpleNamespace(sampling_params={"temperature": 0}))
    manager = SimpleNamespace(rid_to_state={"r": state}, preferred_sampling_params={"stop": "END"})
    batch = SimpleNamespace(rids=["r"], output_strs=["a E"], finished_reasons=[None])
    hold_back_stops(manager, batch)
    assert batch.output_strs == ["a "]


def _scheduler_request(tokenizer, ids, stop) -> Req:
    """A scheduler's request with what its search for stop strings reads."""
    request = Req.__new__(Req)
    request.sampling_params = SamplingParams(stop=stop)
    request.sampling_params.normalize(tokenizer)
    request.tokenizer, request.output_ids, request.decoded_text = tokenizer, ids, ""
    return request


def test_upstream_leaks_the_beginning_of_a_stop_string():
    """Why the seams are there: a whole answer, too, is sent on after every 50th token."""
    tokenizer = byte_level()
    ids = tokenizer("say STOP", add_special_tokens=False)["input_ids"]
    half = next(i for i in range(len(ids)) if "ST" in tokenizer.decode(ids[:i]))
    pieces, reason = [ids[:half], ids[half:]], {"type": "stop", "matched": "STOP"}
    assert len(pieces[1]) > 0
    assert "".join(stream(UPSTREAM, tokenizer, [ids], reason)) == "say "
    assert "".join(stream(UPSTREAM, tokenizer, pieces, reason)) != "say "
    assert _client(tokenizer, pieces, reason, ["STOP"], keep=False) == "say "


def test_upstream_sends_on_a_stop_string_that_ends_within_a_character():
    """The scheduler's own hold-back compares with the replacement of a half character."""
    tokenizer = byte_level()
    ids = _byte_ids(tokenizer, "stopé")
    request = _scheduler_request(tokenizer, ids[:4], "stopé")
    assert request.check_match_stop_str_prefix()
    request.output_ids = ids[:5]
    assert not request.check_match_stop_str_prefix()
    pieces, reason = [ids[:5], ids[5:]], {"type": "stop", "matched": "stopé"}
    assert _client(tokenizer, pieces, reason, ["stopé"], keep=False) == ""


def test_upstream_misses_a_stop_string_that_is_written_in_more_tokens():
    tokenizer = byte_level()
    stop = "the quick brown fox"
    few = len(tokenizer(stop, add_special_tokens=False)["input_ids"])
    ids = _byte_ids(tokenizer, stop)
    assert few + 1 < len(ids)
    request = _scheduler_request(tokenizer, ids, stop)
    assert not request._check_str_based_finish()
    widen_stop_window(None, request.sampling_params, tokenizer)
    assert request._check_str_based_finish()
    assert request.finished_len == len(ids)


def test_a_huge_stop_string_does_not_make_every_step_slow():
    params = SamplingParams(stop=["é" * 10_000, "x"])
    params.normalize(byte_level())
    params.stop_str_max_len = 3
    widen_stop_window(None, params)
    assert params.stop_str_max_len == 256


def _byte_ids(tokenizer, text: str) -> list[int]:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    names = bytes_to_unicode()
    return [tokenizer.convert_tokens_to_ids(names[byte]) for byte in text.encode()]
