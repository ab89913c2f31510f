"""Outputs with tool calls, as models of each format write them."""

from __future__ import annotations

import json

from sglang.srt.entrypoints.openai.protocol import Function, Tool

TOOLS = [
    Tool(
        type="function",
        function=Function(
            name="get_weather",
            parameters={
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            },
        ),
    ),
    Tool(
        type="function",
        function=Function(
            name="add",
            parameters={
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "array"}},
            },
        ),
    ),
]


def _json(name: str, arguments: dict, key: str = "arguments") -> str:
    return json.dumps({"name": name, key: arguments}, ensure_ascii=False)


WEATHER = _json("get_weather", {"city": "Zürich 中", "days": 3})
ADD = _json("add", {"a": 1, "b": [1, [2]]})

_V3 = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n{}\n```<｜tool▁call▁end｜>"
_V31 = "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
_V32 = (
    '<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">A B'
    '</｜DSML｜parameter>\n<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n"
)
_GLM = "<tool_call>{}\n<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n</tool_call>"
_KIMI = "<|tool_call_begin|>functions.{}:{}<|tool_call_argument_begin|>{}<|tool_call_end|>"

#: Format -> outputs that hold calls.
WITH_CALLS: dict[str, list[str]] = {
    "hermes": [
        f"<tool_call>{WEATHER}</tool_call>",
        f"Sure. <tool_call>\n{WEATHER}\n</tool_call>\n<tool_call>\n{ADD}\n</tool_call>",
    ],
    "qwen25": [f"Sure.\n<tool_call>\n{WEATHER}\n</tool_call>\n<tool_call>\n{ADD}\n</tool_call>"],
    "deepseekv3": [
        "ok<｜tool▁calls▁begin｜>"
        + _V3.format("get_weather", '{"city": "A", "days": 2}')
        + "\n"
        + _V3.format("add", '{"a": 2}')
        + "<｜tool▁calls▁end｜>"
    ],
    "deepseekv31": [
        "ok<｜tool▁calls▁begin｜>"
        + _V31.format("get_weather", '{"city": "A", "days": 2}')
        + _V31.format("add", '{"a": 2}')
        + "<｜tool▁calls▁end｜>"
    ],
    "deepseekv32": [
        f"ok\n\n<｜DSML｜function_calls>\n{_V32}</｜DSML｜function_calls>",
        f"ok\n\n{_V32}",
    ],
    "glm45": ["ok" + _GLM.format("get_weather", "city", "A B") + _GLM.format("add", "a", "3")],
    "kimi_k2": [
        "ok<|tool_calls_section_begin|>"
        + _KIMI.format("get_weather", 0, '{"city": "A"}')
        + _KIMI.format("add", 1, '{"a": 1}')
        + "<|tool_calls_section_end|>"
    ],
    "mistral": [f"ok [TOOL_CALLS] [{WEATHER}, {ADD}]"],
    "qwen3_coder": [
        "ok\n<tool_call>\n<function=get_weather>\n<parameter=city>\nA B\n</parameter>\n"
        "</function>\n</tool_call>"
    ],
    "llama3": ["<|python_tag|>" + _json("add", {"a": 1}, "parameters")],
    "pythonic": ['[get_weather(city="A", days=3), add(a=1, b=[1, 2])]'],
}
