"""The line and the report that say how long a start took."""

from __future__ import annotations

import re
import time

import psutil
import pytest

from benchmark import startup
from sglang_ascend.plugin import start_times


def test_phases_add_up_and_the_engine_is_taken_from_the_last_one():
    marks = {"set-up": 100.5, "imports": 109.0, "flags": 109.25, "warm-up": 115.25}
    assert start_times.phases(100.0, marks, engine_s=4.0) == {
        "set-up": 0.5,
        "imports": 8.5,
        "flags": 0.25,
        "engine": 4.0,
        "warm-up": 2.0,
    }


def test_an_engine_cannot_have_taken_longer_than_there_was():
    found = start_times.phases(0.0, {"flags": 1.0, "warm-up": 3.0}, engine_s=9.0)
    assert found == {"flags": 1.0, "engine": 2.0, "warm-up": 0.0}


def test_the_start_of_this_process():
    assert start_times._process_start() == pytest.approx(psutil.Process().create_time(), abs=1.5)
    assert start_times._process_start() < time.time()


def test_a_callback_of_the_caller_is_called_as_well(monkeypatch):
    called = []
    monkeypatch.setattr(start_times, "_report", lambda: called.append("report"))
    args, kwargs = start_times.report_when_ready(1, launch_callback=lambda: called.append("mine"))
    kwargs["launch_callback"]()
    assert args == (1,) and called == ["report", "mine"]


def test_a_server_says_how_long_its_start_took(tiny_deepseek_server):
    log = tiny_deepseek_server.log.read_text(errors="replace")
    line = re.search(r"sglang_ascend: ready in ([\d.]+) s: (.*)", log)
    parts = dict(part.rsplit(" ", 1) for part in line[2].split(", "))
    assert list(parts) == ["set-up", "imports", "flags", "engine", "warm-up"]
    assert sum(map(float, parts.values())) == pytest.approx(float(line[1]), abs=0.4)
    assert all(float(seconds) >= 0 for seconds in parts.values())
    assert "started anew instead of forked" not in log


def test_medians_over_starts():
    def start(seconds: float) -> dict:
        ranks = [{"name": "rank", "cpu_s": seconds, "pss_mib": 10.0}] * 2
        return {
            "first_answer_s": seconds,
            "total_s": seconds + 1,
            "phases_s": {"imports": seconds / 2},
            "engine_s": {"load_weight": 1.0, "cuda_graph": {}},
            "processes": ranks,
        }

    assert startup.medians([start(2.0), start(30.0), start(4.0)]) == {
        "first_answer_s": 4.0,
        "total_s": 5.0,
        "phases_s": {"imports": 2.0},
        "engine_s": {"load_weight": 1.0},
        "processes": {"cpu_s": {"rank": 8.0}, "pss_mib": {"rank": 20.0}},
    }


def test_a_server_that_ends_is_reported_with_its_last_words():
    with pytest.raises(startup.ConfigError, match="ended with 3.*no such flag"):
        startup.start_once(["bash", "-c", "echo no such flag; exit 3", "bash"])
