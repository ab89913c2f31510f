"""Tool calls and text do not depend on how a stream is cut, and are those of the whole answer."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang.srt.function_call.function_call_parser import FunctionCallParser
from sglang.srt.function_call.json_array_parser import JsonArrayParser

from sglang_ascend.frontend import tool_hooks
from sglang_ascend.frontend.tool_stream import ToolStream, markers_of
from tests.frontend.tool_texts import ADD, TOOLS, WEATHER, WITH_CALLS

UPSTREAM = {
    name: getattr(FunctionCallParser, name)
    for name in ("parse_stream_chunk", "parse_stream_end", "parse_non_stream")
}


@pytest.fixture(autouse=True)
def quiet():
    """SGLang logs each text that it cannot parse; these tests make thousands."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def seams(monkeypatch):
    """The hooks as the registry puts them around SGLang's methods."""
    for name, hook in (
        ("parse_stream_chunk", tool_hooks.push),
        ("parse_stream_end", tool_hooks.finish),
        ("parse_non_stream", tool_hooks.whole),
    ):
        monkeypatch.setattr(FunctionCallParser, name, _around(UPSTREAM[name], hook))


def _around(original, hook):
    return lambda *args, **kwargs: hook(original, *args, **kwargs)


def whole(name: str, text: str) -> tuple[str, list]:
    """Text and calls of a whole answer, as the chat entrance reads them."""
    parser = FunctionCallParser(TOOLS, name)
    if not parser.has_tool_call(text):
        return text, []
    try:
        normal, calls = parser.parse_non_stream(text)
    except Exception:
        return text, []
    return normal, [(i, call.name, call.parameters) for i, call in enumerate(calls)]


def streamed(name: str, chunks: list[str]) -> tuple[str, list]:
    """Text and calls of a stream, put together as clients do."""
    parser = FunctionCallParser(TOOLS, name)
    text, calls = "", {}
    for normal, items in [*map(parser.parse_stream_chunk, chunks), parser.parse_stream_end()]:
        text += normal or ""
        for item in items:
            one = calls.setdefault(item.tool_index, [None, ""])
            one[0] = item.name or one[0]
            one[1] += item.parameters or ""
    return text, [(i, *one) for i, one in sorted(calls.items())]


@st.composite
def outputs(draw, name: str) -> str:
    """An output with calls, plain or damaged: cut short, or with text or space around it."""
    text = draw(st.sampled_from(WITH_CALLS[name]))
    if draw(st.booleans()):
        text = text[: draw(st.integers(0, len(text)))]
    edge = st.sampled_from(["", " ", "\n\n", "pre <", "中 {x}", "[1] "])
    return draw(edge) + draw(edge) + text + draw(edge)


@st.composite
def chunks(draw, text: str) -> list[str]:
    ends = sorted(draw(st.lists(st.integers(0, len(text)), max_size=10)))
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]


@pytest.mark.parametrize("name", WITH_CALLS)
def test_every_partition(seams, name):
    @given(data=st.data())
    @settings(max_examples=60, deadline=None)
    def check(data):
        text = data.draw(outputs(name))
        expected = whole(name, text)
        assert streamed(name, data.draw(chunks(text))) == expected
        assert streamed(name, list(text)) == expected

    check()


@pytest.mark.parametrize("name", WITH_CALLS)
def test_upstream_depends_on_the_chunks(name):
    """Why the seams are there, for each format: some cut gives another answer than the whole."""
    texts = [t for text in WITH_CALLS[name] for t in (text, " \n" + text, text + " tail")]
    cuts = [
        (text, pieces)
        for text in texts
        for pieces in ([text], list(text), [text[: len(text) // 2], text[len(text) // 2 :]])
    ]
    assert any(streamed(name, pieces) != whole(name, text) for text, pieces in cuts)


@pytest.mark.parametrize("name", WITH_CALLS)
def test_whole_answers_keep_their_calls(seams, name):
    """The seam on whole answers moves white space only."""
    for text in WITH_CALLS[name]:
        normal, calls = whole(name, " \n" + text)
        original = UPSTREAM["parse_non_stream"](FunctionCallParser(TOOLS, name), " \n" + text)
        assert normal.strip() == original[0].strip()
        assert [call[1:] for call in calls] == [(c.name, c.parameters) for c in original[1]]
        assert calls


def test_text_before_a_call_flows():
    detector = FunctionCallParser(TOOLS, "hermes").detector
    one = ToolStream(lambda text: ("never", []), markers_of(detector))
    assert one.push("Let me ") == "Let me"
    assert one.push("see <b") == " see <b"
    assert one.push(" <tool") == ""
    assert one.push("s> ") == " <tools>"
    assert one.push("x<tool_call>{") == " x"
    assert one.push('"name"') == ""


def test_arguments_follow_the_name_in_an_item_of_their_own(seams):
    """As SGLang's own streams, and the entrances that read them, have it."""
    parser = FunctionCallParser(TOOLS, "hermes")
    parser.parse_stream_chunk(WITH_CALLS["hermes"][0])
    _, items = parser.parse_stream_end()
    assert [(item.name, bool(item.parameters)) for item in items] == [
        ("get_weather", False),
        (None, True),
    ]


def test_without_tools_text_passes(seams):
    parser = FunctionCallParser([], "hermes")
    assert parser.parse_stream_chunk("<tool_call>") == ("<tool_call>", [])
    assert parser.parse_stream_end() == ("", [])


FORCED = [f"[{WEATHER}, {ADD}]".replace("arguments", "parameters"), '{"name": "add"}', "[1, 2", "7"]


@pytest.mark.parametrize("text", FORCED)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_forced_calls(text, data):
    parser = JsonArrayParser()
    for chunk in data.draw(chunks(text)):
        result = tool_hooks.push_json(parser, chunk, TOOLS)
        assert not result.normal_text and not result.calls
    end = tool_hooks.finish_json(parser, TOOLS)
    calls = [(call.tool_index, call.name, call.parameters) for call in end.calls]
    if text == FORCED[0]:
        first, second = json.loads(text)
        assert calls == [
            (0, first["name"], ""),
            (0, None, json.dumps(first["parameters"], ensure_ascii=False)),
            (1, second["name"], ""),
            (1, None, json.dumps(second["parameters"])),
        ]
    elif text == FORCED[1]:
        assert calls == [(0, "add", ""), (0, None, "{}")]
    else:
        assert (end.normal_text, calls) == (text, [])


def test_an_aborted_stream_ends_its_parser():
    content = {"meta_info": {"finish_reason": {"type": "abort"}}}
    args = (object(), 0, "", {}, content, None, {})
    assert tool_hooks.flush_at_any_end(*args, flush=False) == (args, {"flush": True})
    content["meta_info"]["finish_reason"] = None
    assert tool_hooks.flush_at_any_end(*args, flush=True) == (args, {"flush": False})
