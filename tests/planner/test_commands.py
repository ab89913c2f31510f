"""The commands as a user runs them, and the report they write."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree

import pytest

from sglang_ascend.planner import __main__ as command


def test_predict_prints_writes_and_draws(tmp_path, capsys):
    made, page = tmp_path / "p.json", tmp_path / "p.html"
    arguments = ["predict", "a2_pd_48", "--workload", "chat_2k_2k", "--arrival-per-s", "2"]
    assert command.main([*arguments, "--json", str(made), "--html", str(page)]) == 0
    printed = capsys.readouterr().out
    assert "exposed network" in printed and "TTFT at 2 requests/s: p50" in printed
    content = json.loads(made.read_text())
    decode = content["roles"]["decode"]
    assert sum(decode["parts_s"].values()) == pytest.approx(decode["step_s"])
    assert decode["layers"]["moe"]["bytes_by_link"]["expert_gather"]["inter_node"] > 0
    html = page.read_text()
    drawings = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert len(drawings) == 10
    for drawing in drawings:
        assert ElementTree.fromstring(drawing).attrib["aria-label"]
    assert not re.search(r"(src|href)=", html), "the page must stand alone"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "a2_pd_84", "--workload", "chat_2k_2k"], "nearest: a2_pd_48"),
        (["predict", "a2_pd_48", "--workload", "chat"], "workload 'chat' is neither"),
        (
            ["predict", "a2_pd_48", "--workload", "chat_2k_2k", "--arrival-per-s", "99"],
            "times the cards",
        ),
        (
            ["search", "--hardware", "a2", "--cards", "8", "--workload", "chat_2k_2k"],
            "neither a known name",
        ),
        (
            ["predict", "a2_pd_48", "--workload", "chat_2k_2k", "--json", "/no/where"],
            "cannot write",
        ),
        (["calibrate", "--predict", "smollm"], "embedded models: smollm2-135m-instruct"),
        (["calibrate", "--requests", "1;16"], "--requests '1;16' is not accepted"),
        (["calibrate", "--requests", "0"], "give numbers such as 1,16"),
        (["calibrate", "--output-len", "1"], "--output-len 1 is too small; give 2 or more"),
    ],
)
def test_refusals_are_one_line(arguments, message, capsys):
    assert command.main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.startswith("refused: ")
    assert error.count("\n") == 1


def test_search_writes_a_deployment(tmp_path, capsys):
    path = tmp_path / "d.yaml"
    arguments = ["search", "--hardware", "a2_910b_280t", "--cards", "4", "--tpot-ms", "40"]
    arguments += ["--workload", "chat_1k_2k", "--model", "llama-3.1-8b", "--weights", "bf16"]
    assert command.main([*arguments, "--output", str(path)]) == 0
    assert "best: " in capsys.readouterr().out
    assert command.main(["predict", str(path), "--workload", "chat_1k_2k"]) == 0
