"""Text does not depend on how its tokens are cut, and is what decoding them at once gives."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_ascend.frontend.detokenizer_hooks import decode_batch, decoder
from sglang_ascend.frontend.incremental_detokenizer import IncrementalDetokenizer
from tests.frontend.detokenizer_bench import UPSTREAM, manager, message, stream
from tests.frontend.tokenizers_under_test import byte_fallback, byte_level, embedded

LENGTH = {"type": "length", "length": 1}
BYTE_LEVEL = {
    "byte-level": byte_level,
    "smollm2": partial(embedded, "smollm2-135m-instruct"),
    "tiny-deepseek-v3": partial(embedded, "tiny-deepseek-v3"),
}
KINDS = {**BYTE_LEVEL, "byte-fallback": byte_fallback}
TEXT = st.text(st.sampled_from("中文 aé😀👩\u200d\u0301한\n<|>\ufffd🇩"), max_size=30)


@st.composite
def tokens(draw, kind: str):
    """Token ids of a text, then random ones: broken characters and special tokens included."""
    tokenizer = KINDS[kind]()
    ids = tokenizer(draw(TEXT), add_special_tokens=False)["input_ids"]
    return ids + draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=40))


@st.composite
def cut(draw, ids: list[int]):
    """Any way to cut the tokens into pieces, empty ones included."""
    ends = sorted(draw(st.lists(st.integers(0, len(ids)), max_size=12)))
    return [ids[a:b] for a, b in zip([0, *ends], [*ends, len(ids)], strict=True)]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), skip=st.booleans())
@settings(max_examples=100, deadline=None)
def test_every_partition_gives_the_same_text(kind, data, skip):
    ids = data.draw(tokens(kind))
    decode = decoder(KINDS[kind](), skip)
    whole = IncrementalDetokenizer(decode)
    expected = whole.push(ids) + whole.finish()
    pieces = IncrementalDetokenizer(decode)
    joined = "".join(map(pieces.push, data.draw(cut(ids)))) + pieces.finish()
    assert joined == expected


@pytest.mark.parametrize("kind", BYTE_LEVEL)
@given(data=st.data(), skip=st.booleans())
@settings(max_examples=100, deadline=None)
def test_byte_level_text_is_what_decoding_at_once_gives(kind, data, skip):
    ids = data.draw(tokens(kind))
    pieces = IncrementalDetokenizer(decoder(KINDS[kind](), skip))
    joined = "".join(map(pieces.push, data.draw(cut(ids)))) + pieces.finish()
    assert joined == KINDS[kind]().decode(ids, skip_special_tokens=skip)


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_byte_fallback_text_is_the_text_that_was_encoded(data):
    # Decoding at once turns a run of byte tokens with one bad byte into replacements altogether,
    # so only whole characters compare.
    text = data.draw(TEXT).replace("\ufffd", "").replace(" ", "▁")
    ids = byte_fallback()(text, add_special_tokens=False)["input_ids"]
    pieces = IncrementalDetokenizer(decoder(byte_fallback(), True))
    joined = "".join(map(pieces.push, data.draw(cut(ids)))) + pieces.finish()
    assert joined == byte_fallback().decode(ids)


@given(text=TEXT, data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_character_that_the_prompt_begins_is_not_lost(text, data):
    ids = byte_level()(text + "end", add_special_tokens=False)["input_ids"]
    border = data.draw(st.integers(0, len(ids)))
    decode = decoder(byte_level(), True)
    output = IncrementalDetokenizer(decode, ids[:border])
    joined = "".join(output.push([token]) for token in ids[border:]) + output.finish()
    prompt = decode(ids[:border])
    # A replacement at the prompt's end may stand for the bytes that the output completes.
    ends = range(len(prompt.rstrip("\ufffd")), len(prompt) + 1)
    assert decode(ids) in [prompt[:end] + joined for end in ends]


def test_bytes_that_never_become_a_character_do_not_pile_up():
    """Also where each token ends within a character, and none is a place to cut."""
    stream_bytes = ("一" * 400).encode()
    blocks = [stream_bytes[:2]] + [stream_bytes[i : i + 3] for i in range(2, 1200, 3)]
    longest = 0

    def decode(ids):
        nonlocal longest
        longest = max(longest, len(ids))
        return b"".join(blocks[i] for i in ids).decode(errors="replace")

    one = IncrementalDetokenizer(decode)
    texts = [one.push([i]) for i in range(len(blocks))]
    assert "".join(texts) + one.finish() == "一" * 400
    assert all(len(text) == 1 for text in texts[1:])
    assert longest <= 17

    garbage = IncrementalDetokenizer(lambda ids: bytes(ids).decode(errors="replace"))
    sent = garbage.push([0x80] * 1000)
    assert 990 <= len(sent) < 1000
    assert sent + garbage.finish() == "\ufffd" * 1000


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), skip=st.booleans())
@settings(max_examples=100, deadline=None)
def test_the_seam_gives_the_same_text_for_every_partition(kind, data, skip):
    ids = data.draw(tokens(kind)) or [0]
    context = data.draw(tokens(kind))[-5:]
    flags = {"context": context, "skip_special": skip}
    pieces = [piece for piece in data.draw(cut(ids)) if piece]
    cut_text = "".join(stream(decode_batch, KINDS[kind](), pieces, LENGTH, **flags))
    assert cut_text == "".join(stream(decode_batch, KINDS[kind](), [ids], LENGTH, **flags))


def test_a_message_mixes_requests_and_flags():
    tokenizer = byte_level()
    one = manager(tokenizer)
    ids = tokenizer("é<s>中", add_special_tokens=False)["input_ids"]
    assert tokenizer.bos_token_id in ids
    seen = {"a": "", "b": ""}
    for i, token in enumerate(ids):
        end = LENGTH if i == len(ids) - 1 else None
        batch = message("a", [token], reason=end)
        other = message("b", [token], reason=end, skip_special=False)
        both = SimpleNamespace(**{name: a + vars(other)[name] for name, a in vars(batch).items()})
        for rid, text in zip(both.rids, decode_batch(one, both), strict=True):
            seen[rid] += text
    assert seen == {"a": "é中", "b": "é<s>中"}
    assert not one.decode_status


def test_stop_token_is_cut_or_kept():
    ids = byte_level()("é!</s>", add_special_tokens=False)["input_ids"]
    reason = {"type": "stop", "matched": ids[-1]}
    assert "".join(stream(decode_batch, byte_level(), [ids], reason, skip_special=False)) == "é!"
    kept = stream(decode_batch, byte_level(), [ids], reason, no_stop_trim=True, skip_special=False)
    assert "".join(kept) == "é!</s>"


def test_end_without_new_tokens():
    """An aborted request ends without a token; what was held must come."""
    ids = _byte_ids(byte_level(), "aé")[:2]
    abort = {"type": "abort", "message": "gone"}
    assert stream(decode_batch, byte_level(), [ids, []], abort) == ["a", "\ufffd"]


def test_upstream_repeats_a_character():
    """Why the seam is there: two chunks that end within a character repeat the text before it."""
    tokenizer = byte_level()
    raw = _byte_ids(tokenizer, "b中éé")
    # "b中" and half of the first "é"; then its rest and half of the second; then the rest.
    pieces = [raw[:5], raw[5:7], raw[7:]]
    assert "".join(stream(UPSTREAM, tokenizer, [raw], LENGTH)) == "b中éé"
    assert "".join(stream(UPSTREAM, tokenizer, pieces, LENGTH)) != "b中éé"
    assert "".join(stream(decode_batch, tokenizer, pieces, LENGTH)) == "b中éé"


def _byte_ids(tokenizer, text: str) -> list[int]:
    """The one-byte tokens of ``text``."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    names = bytes_to_unicode()
    return [tokenizer.convert_tokens_to_ids(names[byte]) for byte in text.encode()]
