"""INT8 checkpoints that cannot be served: tensor, expected and found, before any process starts."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from sglang_ascend.deploy import checkpoint, int8_checkpoint, memory, model_folder, preflight
from sglang_ascend.deploy.int8_layers import MAX_IN, SCHEME, why_not
from sglang_ascend.errors import ConfigError
from sglang_ascend.quantization import writer
from tests.quantization.conftest import SHARDS

GATE = "model.layers.0.mlp.gate_proj"
EXPERT = "model.layers.1.mlp.experts.1.down_proj"
FORMATS = ("modelslim", "compressed-tensors")


@pytest.fixture(params=FORMATS)
def int8_folder(request, float_folder, tmp_path):
    out = tmp_path / "int8"
    writer.write(writer.Source(float_folder), out, request.param)
    return out


def read(folder, device="reference"):
    tensors = checkpoint.tensors(folder)
    return int8_checkpoint.read(folder, model_folder.read_config(folder), tensors, device)


def change(folder, tensors=None, drop=()):
    """Put other tensors into the weight files, and the index right."""
    where = {}
    for shard in SHARDS:
        content = load_file(folder / shard)
        content |= {n: t for n, t in (tensors or {}).items() if n in content or shard == SHARDS[0]}
        content = {name: tensor for name, tensor in content.items() if name not in drop}
        save_file(content, folder / shard)
        where |= dict.fromkeys(content, shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))


def edit(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_whole_one_is_accepted(int8_folder):
    stored = read(int8_folder)
    assert GATE in stored.int8 and EXPERT in stored.int8
    arguments = {"model_path": str(int8_folder), "host": "127.0.0.1", "port": 31203}
    preflight.run(arguments, "reference")
    preflight.run({**arguments, "quantization": SCHEME}, "reference")
    with pytest.raises(ConfigError, match="no weight for the layer model.layers.7.mlp.up_proj"):
        stored.computes_int8("model.layers.7.mlp.up_proj")


@pytest.mark.parametrize(
    ("tensors", "drop", "message"),
    [
        ({}, [f"{GATE}.weight_scale"], f"{GATE}.weight_scale is missing: expected float .24, 1."),
        ({}, [f"{EXPERT}.weight_scale"], f"{EXPERT}.weight_scale is missing"),
        (
            {f"{GATE}.weight_scale": torch.ones(24, 4)},
            [],
            r"F16 \[24, 1\].* found F32 \[24, 4\] .made for group size 4.",
        ),
        ({f"{GATE}.weight_scale": torch.ones(24)}, [], r"found F32 \[24\]"),
        ({f"{GATE}.weight_scale": torch.ones(24, 1).int()}, [], r"found I32 \[24, 1\]"),
        (
            {f"{GATE}.weight": torch.zeros(24, 12).to(torch.int8)},
            [],
            rf"{GATE}.weight: expected \[24, 16\] for hidden_size 16 .* found \[24, 12\]",
        ),
        (
            {f"{GATE}.input_scale": torch.ones(1)},
            [],
            f"{GATE}.input_scale: expected only .*weight_scale.* found F32 .1. of another scheme",
        ),
        ({f"{GATE}.weight_zero_point": torch.zeros(24, 1)}, [], "weight_zero_point: expected only"),
    ],
)
def test_tensors_of_another_scheme(int8_folder, tensors, drop, message):
    change(int8_folder, tensors, drop)
    with pytest.raises(ConfigError, match=message):
        read(int8_folder)


@pytest.mark.parametrize("name", [GATE, EXPERT])
def test_half_of_a_joined_layer_in_float(int8_folder, name):
    description = int8_folder / "quant_model_description.json"
    if description.is_file():
        edit(description, **{f"{name}.weight": "FLOAT"})
    change(
        int8_folder,
        {f"{name}.weight": torch.ones(24, 16)},
        [f"{name}.weight_scale", f"{name}.weight_offset"],
    )
    with pytest.raises(ConfigError, match=r"expected the scheme of .* \(.*\).*, found"):
        read(int8_folder)


@pytest.fixture
def modelslim(float_folder, tmp_path):
    out = tmp_path / "modelslim"
    writer.write(writer.Source(float_folder), out, "modelslim")
    return out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({f"{GATE}.weight": "W8A8"}, "expected scheme W8A8_DYNAMIC or FLOAT, found 'W8A8'"),
        ({f"{GATE}.weight": "W4A8_DYNAMIC"}, "found 'W4A8_DYNAMIC'"),
        ({f"{GATE}.weight": "FLOAT"}, "says FLOAT, the weight file holds I8"),
        ({"lm_head.weight": "W8A8_DYNAMIC"}, "lm_head.weight: .*the weight file holds BF16"),
        ({"group_size": 256}, "group_size: expected 0 .one scale a channel., found 256"),
    ],
)
def test_a_description_that_says_otherwise(modelslim, changes, message):
    edit(modelslim / "quant_model_description.json", **changes)
    with pytest.raises(ConfigError, match=message):
        read(modelslim)


def test_an_unreadable_description(modelslim):
    (modelslim / "quant_model_description.json").write_text("[")
    with pytest.raises(ConfigError, match="quant_model_description.json is unreadable"):
        read(modelslim)


def test_a_norm_with_a_bias(modelslim):
    change(modelslim, {"model.layers.0.input_layernorm.bias": torch.ones(16)})
    with pytest.raises(ConfigError, match="input_layernorm.bias: expected norms without bias"):
        read(modelslim)


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("weights", "strategy", "group"),
        ("weights", "group_size", 128),
        ("weights", "symmetric", False),
        ("input_activations", "dynamic", False),
        ("input_activations", "strategy", "tensor"),
    ],
)
def test_compressed_tensors_in_another_scheme(float_folder, tmp_path, part, key, value):
    out = tmp_path / "compressed"
    writer.write(writer.Source(float_folder), out, "compressed-tensors")
    config = json.loads((out / "config.json").read_text())
    config["quantization_config"]["config_groups"]["group_0"][part][key] = value
    (out / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=rf"group_0.{part}.{key}: expected .*, found {value!r}"):
        read(out)


def test_int8_weights_that_nothing_describes(modelslim):
    (modelslim / "quant_model_description.json").unlink()
    arguments = {"model_path": str(modelslim), "host": "127.0.0.1", "port": 31203}
    with pytest.raises(ConfigError, match="describes no quantisation"):
        preflight.run({**arguments, "quantization": SCHEME}, "reference")
    with pytest.raises(ConfigError, match="stored as I8"):
        preflight.run(arguments, "reference")


@pytest.mark.parametrize(
    ("quantization_config", "asked", "message"),
    [
        ({"quant_method": "fp8"}, SCHEME, "the checkpoint's quantization 'fp8' is not supported"),
        ({"quant_method": "awq"}, None, "the checkpoint's quantization 'awq' is not supported"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}},
            },
            None,
            "weights.num_bits: expected 8, found 4",
        ),
        (None, "w8a8_int8", "--quantization 'w8a8_int8' is not supported on reference"),
    ],
)
def test_other_methods(float_folder, quantization_config, asked, message):
    edit(float_folder / "config.json", quantization_config=quantization_config)
    arguments = {"model_path": str(float_folder), "host": "127.0.0.1", "port": 31203}
    with pytest.raises(ConfigError, match=message):
        preflight.run({**arguments, "quantization": asked}, "reference")


def test_a_float_layer_that_cannot_take_it(float_folder):
    change(float_folder, {f"{GATE}.weight": torch.ones(65536, 16)})
    assert read(float_folder).quantises(GATE)
    with pytest.raises(
        ConfigError,
        match=f"layer {GATE} cannot take ascend_w8a8: it has 65536 outputs; quant_matmul on npu "
        "takes at most 65535",
    ):
        read(float_folder, "npu")
    with pytest.raises(ConfigError, match="cannot take ascend_w8a8"):
        writer.Source(float_folder)
    assert f"at most {MAX_IN}" in why_not((1, MAX_IN + 1), "reference")
    assert why_not((1, MAX_IN), "reference") is None


def test_memory_of_a_float_checkpoint_that_is_quantised(float_folder):
    tensors, stored = checkpoint.tensors(float_folder), read(float_folder)
    int8 = sum(t.elements for t in tensors if "_proj" in t.name and "kv_b_proj" not in t.name)
    others = sum(t.elements for t in tensors) - int8
    assert memory.weight_bytes(tensors, 4, stored.quantises) == int8 + 4 * others
    assert memory.weight_bytes(tensors, 4) == 4 * (int8 + others)


def test_a_model_without_projections(float_folder):
    for shard in SHARDS:
        tensors = load_file(float_folder / shard)
        save_file({n: t for n, t in tensors.items() if "_proj" not in n}, float_folder / shard)
    (float_folder / "model.safetensors.index.json").unlink()
    with pytest.raises(ConfigError, match="finds no layer to quantise"):
        read(float_folder)


def test_float32_on_npu(float_folder):
    arguments = {"model_path": str(float_folder), "host": "127.0.0.1", "port": 31203}
    arguments |= {"quantization": SCHEME, "page_size": 128}
    with pytest.raises(ConfigError, match="--dtype float32 does not go with ascend_w8a8 on npu"):
        preflight.run({**arguments, "dtype": "float32"}, "npu")
    preflight.run({**arguments, "dtype": "bfloat16"}, "npu")
