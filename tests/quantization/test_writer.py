"""`python -m sglang_ascend.quantize`: what it writes, and what an interruption leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from sglang_ascend import quantize
from sglang_ascend.deploy import checkpoint, int8_checkpoint, model_folder
from sglang_ascend.deploy.int8_layers import takes_int8
from sglang_ascend.errors import ConfigError
from sglang_ascend.quantization import writer
from sglang_ascend.quantization.weights import quantise_weight
from tests.quantization.conftest import SHARDS, float_tensors

FORMATS = ("modelslim", "compressed-tensors")


def read(folder):
    config = model_folder.read_config(folder)
    return int8_checkpoint.read(folder, config, checkpoint.tensors(folder), "reference")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".tmp"}


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_written_is_read_as_int8(float_folder, tmp_path, form, capsys):
    out = tmp_path / "out"
    assert quantize.main([str(float_folder), str(out), "--format", form]) == 0
    stored = read(out)
    assert stored.kind == form
    for shard, tensors in float_tensors().items():
        found = load_file(out / shard)
        for name, tensor in tensors.items():
            layer = name.removesuffix(".weight")
            assert (layer in stored.int8) == takes_int8(layer), name
            if not takes_int8(layer):
                assert torch.equal(found[name], tensor)
                continue
            q, scale = quantise_weight(tensor)
            assert torch.equal(found[name], q) and torch.equal(
                found[f"{layer}.weight_scale"], scale
            )
            assert (f"{layer}.weight_offset" in found) == (form == "modelslim")
            assert not found.get(f"{layer}.weight_offset", torch.zeros(1)).any()
    for layer in ("lm_head", "model.layers.1.mlp.gate", "model.layers.0.self_attn.kv_b_proj"):
        assert layer in stored.others
    assert stored.computes_int8("model.layers.0.mlp.gate_up_proj")
    assert stored.computes_int8("model.layers.0.self_attn.fused_qkv_a_proj_with_mqa")
    assert stored.computes_int8("model.layers.1.mlp.experts")
    assert not stored.computes_int8("model.layers.0.self_attn.kv_b_proj")
    assert (out / "tokenizer.json").is_file()
    assert "layers in INT8" in capsys.readouterr().out


def test_the_report_names_every_layer_and_its_error(float_folder, tmp_path):
    out = tmp_path / "out"
    layers = writer.write(writer.Source(float_folder), out, "modelslim")
    assert json.loads((out / "quantize_report.json").read_text())["layers"] == layers
    assert len(layers) == 6 + 2 * 3
    for layer, row in layers.items():
        tensor = next(t for ts in float_tensors().values() for n, t in ts.items() if layer in n)
        q, scale = quantise_weight(tensor)
        relative = (q * scale - tensor.float()).norm() / tensor.float().norm()
        assert row["relative"] == pytest.approx(float(relative), rel=1e-4)
        assert 0 < row["relative"] <= row["worst_channel"] < 0.02


class Interrupted(Exception):
    pass


def interrupt_in(shard_number: int, float_folder, out, form="modelslim"):
    source = writer.Source(float_folder)
    before = sum(t.elements for ts in list(source.shards.values())[:shard_number] for t in ts)
    done = 0

    def advance(elements: int) -> None:
        nonlocal done
        done += elements
        if done > before:
            raise Interrupted

    with pytest.raises(Interrupted):
        writer.write(source, out, form, advance=advance)


@pytest.mark.parametrize("shard_number", [0, 1])
def test_an_interrupted_folder_does_not_load_and_is_finished(float_folder, tmp_path, shard_number):
    out, whole = tmp_path / "out", tmp_path / "whole"
    interrupt_in(shard_number, float_folder, out)
    with pytest.raises(ConfigError, match="no config.json"):
        model_folder.read_config(out)
    kept = {p.name: p.stat().st_mtime_ns for p in out.glob("*.safetensors")}
    assert list(kept) == list(SHARDS[:shard_number])
    writer.write(writer.Source(float_folder), out, "modelslim")
    writer.write(writer.Source(float_folder), whole, "modelslim")
    assert contents(out) == contents(whole)
    for name, when in kept.items():
        assert (out / name).stat().st_mtime_ns == when  # not written a second time


def test_a_damaged_file_is_written_again(float_folder, tmp_path):
    out = tmp_path / "out"
    interrupt_in(1, float_folder, out)
    path = out / SHARDS[0]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    writer.write(writer.Source(float_folder), out, "modelslim")
    whole = tmp_path / "whole"
    writer.write(writer.Source(float_folder), whole, "modelslim")
    assert contents(out) == contents(whole)


def test_killed_in_the_middle_of_a_file(float_folder, tmp_path):
    """A process that dies while it writes leaves nothing that loads."""
    out = tmp_path / "out"
    code = (
        "import os, sys; from pathlib import Path; from sglang_ascend.quantization import writer;"
        "real = writer.save_file\n"
        "def cut(content, path, **more):\n"
        "    real(content, path, **more); os.truncate(path, 100); os._exit(9)\n"
        "writer.save_file = cut\n"
        "writer.write(writer.Source(Path(sys.argv[1])), Path(sys.argv[2]), 'modelslim')"
    )
    command = [sys.executable, "-c", code, str(float_folder), str(out)]
    assert subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode == 9
    with pytest.raises(ConfigError, match="no config.json"):
        model_folder.read_config(out)
    writer.write(writer.Source(float_folder), out, "modelslim")
    assert read(out).int8


@pytest.mark.parametrize("finished", [False, True])
def test_other_options_are_refused_or_start_clean(float_folder, tmp_path, finished):
    out, clean = tmp_path / "out", tmp_path / "clean"
    if finished:
        writer.write(writer.Source(float_folder), out, "modelslim")
    else:
        interrupt_in(1, float_folder, out)
    before = contents(out)
    source = writer.Source(float_folder)
    with pytest.raises(ConfigError, match="format 'modelslim' .now 'compressed-tensors'"):
        writer.write(source, out, "compressed-tensors")
    assert contents(out) == before
    writer.write(source, out, "compressed-tensors", restart=True)
    writer.write(source, clean, "compressed-tensors")
    assert contents(out) == contents(clean)


def test_another_source_is_refused(float_folder, tmp_path):
    out = tmp_path / "out"
    interrupt_in(1, float_folder, out)
    config = model_folder.read_config(float_folder)
    (float_folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    with pytest.raises(ConfigError, match="was begun with source"):
        writer.write(writer.Source(float_folder), out, "modelslim")


def test_a_folder_of_somebody_else_is_left_alone(float_folder, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("all of it")
    assert quantize.main([str(float_folder), str(out), "--restart"]) == 2
    assert "was not made by this program" in capsys.readouterr().err
    assert contents(out) == {"thesis.txt": b"all of it"}
    assert quantize.main([str(float_folder), str(float_folder)]) == 2


def test_two_runs_at_once(float_folder, tmp_path):
    out = tmp_path / "out"
    source = writer.Source(float_folder)

    def second(_):
        with pytest.raises(ConfigError, match="another run is writing"):
            writer.write(source, out, "modelslim")

    writer.write(source, out, "modelslim", advance=second)


def test_a_quantised_source_is_refused(float_folder, tmp_path):
    out = tmp_path / "out"
    writer.write(writer.Source(float_folder), out, "modelslim")
    with pytest.raises(ConfigError, match="is quantised already .modelslim."):
        writer.Source(out)
