"""Predictions of the reference device: from measured figures to TTFT, TPOT and tokens/s."""

from __future__ import annotations

import dataclasses
import json
import weakref

import pytest
import torch

from benchmark import planner_calibration
from sglang_ascend.comm.hardware import load_hardware
from sglang_ascend.deploy import deployment_shape
from sglang_ascend.errors import ConfigError
from sglang_ascend.models import catalog
from sglang_ascend.planner import __main__ as command
from sglang_ascend.planner.calibration import (
    attention_kernels,
    host,
    kernels,
    machine,
    prediction,
    probe_models,
    rates,
    timing,
)
from sglang_ascend.planner.calibration.steps import PRECISIONS, Steps

#: A made-up machine: weights from memory and from the caches, and operations a second.
BYTES_PER_S, CACHED_BYTES_PER_S, FLOPS_PER_S = 10e9, 40e9, 200e9
CALL_S = 1e-6


def made_up(**changed: float) -> rates.Rates:
    """Figures of a machine that is exactly as fast as it says."""
    figures = {
        "call/product": CALL_S,
        "call/vector": CALL_S,
        "vector": 1e-10,
        "loopback/byte": 1e-9,
        "loopback/latency": 3e-5,
    }
    for form in rates.FORMATS:
        width = 1 if form == "int8" else 4
        for set_bytes, speed in zip(rates.SET_BYTES, (CACHED_BYTES_PER_S, BYTES_PER_S)):
            for rows in rates.ROWS:
                for side in rates.SIDES:
                    work = max(width * side**2 / speed, 2 * rows * side**2 / FLOPS_PER_S)
                    figures[rates.product(form, set_bytes, rows, side)] = CALL_S + work
    for kind in ("gqa", "mla"):
        figures[f"attention/{kind}/prefill"] = 2 / FLOPS_PER_S
        figures |= {f"attention/{kind}/decode/{n}": 4e-11 for n in rates.REQUESTS}
    figures |= {f"output_layer/{n}": 1 / BYTES_PER_S for n in rates.REQUESTS}
    return rates.Rates(figures | changed)


HOST = {
    probe_models.DENSE: host.Host((0.001, 0.002), (0.010, 0.130), (0.0, 0.0), (0.0005, 0.002)),
    probe_models.EXPERTS: host.Host(
        (0.002, 0.004), (0.012, 0.140), (0.0015, 0.003), (0.003, 0.010)
    ),
}
MACHINE = machine.Machine(made_up(), HOST)


def served(model: str, number_format: str = "float32", **load: int) -> prediction.Served:
    predictor = prediction.question(model, number_format).on(MACHINE)
    return predictor.serve(prediction.Load(**load))


def test_a_product_between_measured_ones_takes_a_time_between_theirs():
    measured = made_up()
    for side in rates.SIDES:
        name = rates.product("float32", rates.SET_BYTES[1], 16, side)
        found = measured.product_s("float32", 16, side**2, rates.SET_BYTES[1])
        assert found == pytest.approx(measured.figures[name])
    low, middle, high = (
        measured.product_s("float32", rows, 1e6, rates.SET_BYTES[1]) for rows in (128, 500, 2048)
    )
    assert low < middle < high
    twice = measured.product_s("float32", 2048, 2 * rates.SIDES[-1] ** 2, rates.SET_BYTES[1])
    largest = measured.product_s("float32", 2048, rates.SIDES[-1] ** 2, rates.SET_BYTES[1])
    assert twice - CALL_S == pytest.approx(2 * (largest - CALL_S))
    assert measured.product_s("float32", 1, 16, rates.SET_BYTES[0]) == pytest.approx(
        CALL_S, rel=0.01
    )


def test_a_decode_step_of_a_dense_model_reads_every_weight_once():
    # 106M parameters of 4 bytes or of 1 at 10 GB/s, and 28M of 1 in the screened output layer. Less
    # than was measured from memory is in a cache in part.
    short, long = (served(catalog.DEFAULT_MODEL, input_tokens=n).tpot_s for n in (64, 512))
    assert 0.042 < short < 0.048 and short < long < 1.2 * short
    half = served(catalog.DEFAULT_MODEL, "ascend_w8a8").tpot_s
    nbytes = 106e6 + 28.3e6
    assert nbytes / CACHED_BYTES_PER_S < half - 0.001 < nbytes / BYTES_PER_S


def test_prefill_of_requests_that_come_together_waits_for_the_first():
    alone = served(catalog.DEFAULT_MODEL)
    # 106M parameters without the embedding; 30 layers and the arrival of a request.
    kernels_s = 128 * 2 * 106e6 / FLOPS_PER_S
    assert 1.0 < (alone.ttft_s - 0.010 - 30 * 0.0005) / kernels_s < 1.3
    both = served(catalog.DEFAULT_MODEL, requests=2)
    assert both.ttft_s == pytest.approx(2 * alone.ttft_s - 0.010, rel=0.02)
    many = served(catalog.DEFAULT_MODEL, requests=16)
    assert many.ttft_s > 14 * kernels_s
    assert many.tokens_per_s == pytest.approx(16 * 64 / (many.ttft_s + 63 * many.tpot_s))


def test_a_model_with_experts_pays_for_python_in_every_layer():
    found = served(catalog.TINY_DEEPSEEK_V3)
    assert found.tpot_s > 0.002 + 3 * 0.0015
    own = dataclasses.replace(HOST[probe_models.EXPERTS], decode_layer_s=(0.0, 0.0))
    free = {**HOST, probe_models.EXPERTS: own}
    question = prediction.question(catalog.TINY_DEEPSEEK_V3, "float32")
    assert question.formats == {"float32_of_bf16"}, "its checkpoint is in BF16"
    without = question.on(machine.Machine(MACHINE.rates, free)).serve(prediction.Load())
    assert found.tpot_s - without.tpot_s == pytest.approx(3 * 0.0015)
    assert prediction.question(catalog.DEFAULT_MODEL, "ascend_w8a8").formats == {
        "float32",
        "float32_of_bf16",
        "int8",
    }


def test_weights_of_16_bits_lie_between_those_of_8_and_of_24():
    assert prediction.question(catalog.DEFAULT_MODEL, "float32").float_format == rates.OF_16_BITS
    many = rates.product("float32", rates.SET_BYTES[1], 2048, 704)
    slower = made_up(**{many: 4 * MACHINE.rates.figures[many]})
    at = 2048, 704**2, rates.SET_BYTES[1]
    bf16 = slower.product_s("float32_of_bf16", *at)
    assert slower.product_s(rates.OF_16_BITS, *at) == pytest.approx(3 * bf16, rel=0.01)


def probes() -> list[tuple[str, int]]:
    return [(kind, n) for kind, layers in probe_models.LAYERS.items() for n in layers]


def test_the_host_is_found_again_from_the_times_that_it_causes():
    times = {}
    for kind, layers in probes():
        shape = deployment_shape.from_config(kind, probe_models.config(kind, layers))
        predictor = prediction.Predictor(Steps(MACHINE.rates, shape), HOST[kind])
        found = {at: predictor.serve(prediction.Load(at)) for at in (host.ALONE, host.TOGETHER)}
        times[kind, layers] = {at: (one.ttft_s, one.tpot_s) for at, one in found.items()}
    solved = host.solve(times, MACHINE.rates)
    for kind, own in HOST.items():
        for name, pair in vars(own).items():
            assert getattr(solved[kind], name) == pytest.approx(pair, abs=1e-9), (kind, name)


def test_probes_are_models_that_can_be_predicted(tmp_path):
    for kind, layers in probes():
        folder = probe_models.write(kind, layers, tmp_path / f"{kind}-{layers}")
        shape = prediction.question(str(folder), "float32").shape
        assert shape.layers == layers
        assert bool(shape.moe_layers) == (kind == probe_models.EXPERTS)
    config = json.loads((folder / "config.json").read_text()) | {"kv_lora_rank": None}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="experts but no latent attention"):
        prediction.question(str(folder), "float32")


def test_kernels_have_a_figure_for_everything_that_a_prediction_reads(monkeypatch):
    monkeypatch.setattr(timing, "LEAST_S", 0.0)
    monkeypatch.setattr(kernels, "_REPEATS", 1)
    monkeypatch.setattr(kernels, "_MOST_LAYERS", 2)
    monkeypatch.setattr(attention_kernels, "_CACHES", 1)
    monkeypatch.setattr(kernels, "_HEAD_SHAPE", (256, 32))
    monkeypatch.setattr(rates, "SIDES", (16, 32))
    found = kernels.figures(rates.FORMATS)
    expected = {
        rates.product(form, set_bytes, rows, side)
        for form in rates.FORMATS
        for set_bytes in rates.SET_BYTES
        for rows in rates.ROWS
        for side in (16, 32)
    }
    expected |= {name for name in made_up().figures if not name.startswith("product/")}
    assert set(found) == expected
    assert min(found[name] for name in expected - {"attention/mla/prefill"}) > 0


def test_a_replayed_product_keeps_its_inputs_alive():
    with torch.inference_mode():
        inputs = torch.randn(1, 16)
        alive = weakref.ref(inputs)
        run = kernels._product([kernels._layer("float32", 16)], inputs)
        del inputs
        assert run() > 0
        assert alive() is not None, "a recording knows addresses, and keeps results only"


def test_calibrate_writes_rates_as_hardware(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(machine, "measure_rates", made_up)
    path = tmp_path / "here.yaml"
    assert command.main(["calibrate", "--output", str(path)]) == 0
    assert "memory 10.0 GB/s" in capsys.readouterr().out
    found = load_hardware(path)
    assert found.constants["compute.fp32"].source == "measured"
    assert found.si("compute.fp32") == pytest.approx(FLOPS_PER_S, rel=0.01)
    assert found.si("memory.bandwidth") == pytest.approx(BYTES_PER_S, rel=0.01)
    assert found.si("compute.fixed_vector") == pytest.approx(CALL_S)


def test_calibrate_predicts_a_model(monkeypatch, capsys):
    monkeypatch.setattr(machine, "measure", lambda formats: MACHINE)
    assert command.main(["calibrate", "--predict", catalog.DEFAULT_MODEL, "--requests", "4"]) == 0
    printed = capsys.readouterr().out
    expected = served(catalog.DEFAULT_MODEL, requests=4)
    assert "predicted, not measured" in printed
    assert printed.split()[-4:] == [
        "4",
        f"{expected.ttft_s * 1e3:.1f}",
        f"{expected.tpot_s * 1e3:.2f}",
        f"{expected.tokens_per_s:.1f}",
    ]


def test_kernels_that_cannot_be_timed_are_one_error(monkeypatch):
    monkeypatch.setattr(machine.sys, "executable", "/bin/false")
    with pytest.raises(ConfigError, match="kernels could not be timed"):
        machine.measure_rates()


def test_benchmark_compares_each_round_with_what_it_served(tmp_path, monkeypatch, capsys):
    def cell(at: int, seconds: float) -> dict:
        answer = {"first_s": seconds, "tpot_s": seconds / 10, "tokens": 64}
        return {"concurrency": at, "tokens_per_s": 1 / seconds, "answers": [answer]}

    load = iter((1, 3, 2, 4))  # before and after each of two measurements

    def run(model, formats):
        whole = {"startup_s": 1.0, "peak_memory_bytes": 1.0}
        if model == catalog.DEFAULT_MODEL:
            run.load = next(load)
        cells = [cell(1, 0.1 * run.load), cell(16, 2.0 * run.load)]
        return {f: {**whole, "cells": cells} for f in formats}

    asked = []
    monkeypatch.setattr(planner_calibration, "_served", run)
    monkeypatch.setattr(machine, "measure", lambda formats: asked.append(formats) or MACHINE)
    out = tmp_path / "c.json"
    assert planner_calibration.main(["--rounds", "2", "--out", str(out)]) == 0
    content = json.loads(out.read_text())
    assert asked == 2 * [{"float32", "float32_of_bf16"}]
    assert [row["requests"] for row in content["cells"]] == [1, 16, 1, 16]
    row = content["cells"][1]
    expected = served(catalog.DEFAULT_MODEL, requests=16)
    assert row["model"] == catalog.DEFAULT_MODEL
    assert row["measured"]["ttft_s"] == 5.0, "of 4.0 and 6.0 seconds"
    first, second = (one["ratio"]["ttft_s"] for one in row["rounds"])
    assert first == pytest.approx(expected.ttft_s / 4.0)
    assert second == pytest.approx(expected.ttft_s / 6.0)
    assert row["ratio"]["ttft_s"] == pytest.approx((first + second) / 2)
    assert "within 20%: " in capsys.readouterr().out
    with pytest.raises(SystemExit):
        planner_calibration.main(["--formats", "int4", "--out", str(out)])


def test_formats_are_those_that_ours_is_served_in():
    from benchmark.partners import ours

    assert tuple(PRECISIONS) == ours.FORMATS
