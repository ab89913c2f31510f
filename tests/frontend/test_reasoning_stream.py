"""Reasoning and answer do not depend on how a stream is cut, and are those of the whole text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang.srt.parser.reasoning_parser import BaseReasoningFormatDetector, ReasoningParser

from sglang_ascend.frontend import reasoning_stream

#: Formats that SGLang's base detector parses, with <think> and </think>.
PARSERS = ["deepseek-r1", "deepseek-v3", "deepseek-v4", "qwen3", "glm45", "mimo", "step3"]
HOOKS = {
    "parse_streaming_increment": reasoning_stream.increment,
    "_detect_and_parse_impl": reasoning_stream.whole,
}
UPSTREAM = {name: getattr(BaseReasoningFormatDetector, name) for name in HOOKS}
TEXT = st.lists(
    st.sampled_from(["<think>", "</think>", "a", "b ", "\n", "<", "thi", "中", "x > y"]), max_size=9
).map("".join)


@pytest.fixture
def seams(monkeypatch):
    for name, hook in HOOKS.items():
        monkeypatch.setattr(BaseReasoningFormatDetector, name, _around(UPSTREAM[name], hook))


def _around(original, hook):
    return lambda *args: hook(original, *args)


def parser(name: str, forced, at_once: bool) -> ReasoningParser:
    return ReasoningParser(name, stream_reasoning=at_once, force_reasoning=forced)


def whole(name, forced, at_once, text) -> tuple[str, str]:
    reasoning, normal = parser(name, forced, at_once).parse_non_stream(text)
    return reasoning or "", normal or ""


def streamed(name, forced, at_once, chunks) -> tuple[str, str]:
    one = parser(name, forced, at_once)
    pairs = [*map(one.parse_stream_chunk, chunks), one.parse_stream_end()]
    return tuple("".join(pair[i] or "" for pair in pairs) for i in (0, 1))


@pytest.mark.parametrize("name", PARSERS)
@pytest.mark.parametrize("forced", [None, True, False])
def test_every_partition(seams, name, forced):
    @given(text=TEXT, data=st.data(), at_once=st.booleans())
    @settings(max_examples=60, deadline=None)
    def check(text, data, at_once):
        ends = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
        chunks = [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]
        expected = streamed(name, forced, at_once, list(text))
        assert streamed(name, forced, at_once, chunks) == expected
        assert streamed(name, forced, at_once, [text]) == expected
        assert whole(name, forced, at_once, text) == expected

    check()


@pytest.mark.parametrize("name", PARSERS)
@pytest.mark.parametrize(
    "text", ["<think>a</think>b", "a</think>b", "b", "<think>a", "<think>a\n</think>\n\nb <x>"]
)
def test_usual_outputs_are_parsed_as_upstream_does(name, text, monkeypatch):
    before = [whole(name, forced, True, text) for forced in (None, True, False)]
    for method, hook in HOOKS.items():
        monkeypatch.setattr(BaseReasoningFormatDetector, method, _around(UPSTREAM[method], hook))
    assert [whole(name, forced, True, text) for forced in (None, True, False)] == before


def test_upstream_depends_on_the_chunks():
    """Why the seams are there: a line feed before the opening token is enough."""
    text = "\n<think>y</think>z"
    answers = {
        streamed("deepseek-v3", None, True, chunks)
        for chunks in ([text], list(text), [text[:1], text[1:]])
    }
    assert len(answers | {whole("deepseek-v3", None, True, text)}) == 3
