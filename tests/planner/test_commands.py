"""The commands as a user runs them, and the report they write."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree

import pytest

from sglang_ascend.planner import __main__ as command
from sglang_ascend.planner import calibrate


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


def test_calibrate_measures_positive_rates(tmp_path):
    path = tmp_path / "here.yaml"
    assert command.main(["calibrate", "--output", str(path)]) == 0
    from sglang_ascend.comm.hardware import load_hardware

    found = load_hardware(path)
    assert found.constants["compute.fp32"].source == "measured"
    measured = calibrate.Measured(5e10, 1e10, 1e9, 5e-5, 1e-5, 4e-6)
    own = calibrate.hardware(measured)
    assert own.si("compute.fp32") == pytest.approx(5e10)
    assert own.si("memory.bandwidth") == pytest.approx(1e10)
    assert own.si("compute.fixed_vector") == pytest.approx(4e-6)


def test_calibration_benchmark_predicts_the_reference_device():
    from benchmark import planner_calibration

    rates = calibrate.Measured(5e10, 1e10, 1e9, 5e-5, 1e-5, 4e-6)
    short, long = (
        planner_calibration._predicted("smollm2-135m-instruct", rates, cell, 0.003)
        for cell in ((64, 48, 1), (512, 48, 1))
    )
    # 135M parameters of 4 bytes at 10 GB/s are 54 ms a token, whatever the prompt.
    assert 0.054 < short["tpot_s"] < 0.075
    assert short["tpot_s"] < long["tpot_s"] < 1.2 * short["tpot_s"]
    # 512 tokens of 2 x 106M operations (without the embedding) at 50 GFLOPS.
    assert 512 * 2 * 106e6 / 5e10 < long["ttft_s"] < 1.5 * 512 * 2 * 106e6 / 5e10
