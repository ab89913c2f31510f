"""SGLang's layers with INT8 weights: loading from float and from INT8, and what they compute."""

from __future__ import annotations

import pytest
import torch

from sglang_ascend.deploy.int8_checkpoint import StoredLayers
from sglang_ascend.errors import ConfigError
from sglang_ascend.quantization.weights import dequantise_weight, quantise_weight
from tests.support.int8_reference import integer_linear, quantise_rows

NAMES = frozenset({"a.up_proj", "a.kv_b_proj"})


def linear(name: str, kind: str, rows_in: int = 48, rows_out: int = 20, bias: bool = False):
    from sglang.srt.layers.linear import ReplicatedLinear

    from sglang_ascend.quantization.config import AscendW8A8Config

    stored = StoredLayers(kind, int8=NAMES) if kind != "float" else None
    config = AscendW8A8Config(stored)
    return ReplicatedLinear(
        rows_in, rows_out, bias=bias, params_dtype=torch.float32, quant_config=config, prefix=name
    )


def load(layer, **tensors: torch.Tensor) -> None:
    """As SGLang does: parameters by name, in the order of the file, then the processing."""
    parameters = dict(layer.named_parameters())
    for name, tensor in tensors.items():
        parameters[name].weight_loader(parameters[name], tensor)
    layer.quant_method.process_weights_after_loading(layer)


def int8_tensors(weight: torch.Tensor, kind: str) -> dict[str, torch.Tensor]:
    q, scale = quantise_weight(weight)
    offset = {"weight_offset": torch.zeros_like(scale)} if kind == "modelslim" else {}
    return {"weight_scale": scale, **offset, "weight": q}


@pytest.mark.parametrize("kind", ["float", "modelslim", "compressed-tensors"])
def test_a_linear_layer_equals_integers(kind):
    torch.manual_seed(0)
    layer, weight, x = linear("a.up_proj", kind, bias=True), torch.randn(20, 48), torch.randn(5, 48)
    layer.bias.data = torch.randn(20)
    load(layer, **({"weight": weight} if kind == "float" else int8_tensors(weight, kind)))
    assert {name for name, _ in layer.named_parameters()} == {"weight", "weight_scale", "bias"}
    assert (layer.weight.dtype, layer.weight.shape) == (torch.int8, (48, 20))
    expected = integer_linear(x, *quantise_rows(weight)) + layer.bias
    torch.testing.assert_close(layer(x)[0], expected, rtol=1e-5, atol=1e-5)
    assert layer(torch.empty(0, 48))[0].shape == (0, 20)


@pytest.mark.parametrize("kind", ["float", "modelslim", "compressed-tensors"])
def test_new_weights_of_a_running_server(kind):
    torch.manual_seed(0)
    layer, x = linear("a.up_proj", kind), torch.randn(5, 48)
    for _ in range(2):
        weight = torch.randn(20, 48)
        load(layer, **({"weight": weight} if kind == "float" else int8_tensors(weight, kind)))
        expected = integer_linear(x, *quantise_rows(weight))
        torch.testing.assert_close(layer(x)[0], expected, rtol=1e-5, atol=1e-5)
        layer.quant_method.restore_weights_before_loading(layer)
    with pytest.raises(ConfigError, match="layer a.up_proj: 20 of 20 channels were not"):
        load(layer)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("kind", ["modelslim", "compressed-tensors"])
def test_a_layer_that_is_folded_is_dequantised(kind, order):
    torch.manual_seed(0)
    layer, weight = linear("a.kv_b_proj", kind), torch.randn(20, 48)
    tensors = int8_tensors(weight, kind)
    for _ in range(2):
        load(layer, **dict(list(tensors.items())[::order]))
        assert {name for name, _ in layer.named_parameters()} == {"weight"}
        assert torch.equal(layer.weight, dequantise_weight(*quantise_weight(weight)))
        layer.quant_method.restore_weights_before_loading(layer)
    with pytest.raises(ConfigError, match="weight or weight_scale of layer a.kv_b_proj"):
        load(layer, weight=tensors["weight"])


@pytest.mark.parametrize("name", ["a.up_proj", "a.kv_b_proj"])
def test_an_offset_that_is_not_zero(name):
    layer = linear(name, "modelslim")
    tensors = int8_tensors(torch.randn(20, 48), "modelslim")
    tensors["weight_offset"][3] = -2.5
    with pytest.raises(ConfigError, match=f"layer {name}: expected zeros .* up to 2.5"):
        load(layer, **tensors)


def test_a_scale_that_is_missing():
    layer = linear("a.up_proj", "compressed-tensors")
    with pytest.raises(ConfigError, match="20 of 20 channels were not in the checkpoint"):
        load(layer, weight=quantise_weight(torch.randn(20, 48))[0])


@pytest.mark.parametrize(
    "name", ["a.kv_b_proj", "lm_head", "a.mlp.gate", "a.eh_proj", "a.visual.q_proj"]
)
def test_layers_that_stay_in_float(name):
    torch.manual_seed(0)
    layer, weight, x = linear(name, "float"), torch.randn(20, 48), torch.randn(5, 48)
    load(layer, weight=weight)
    assert torch.equal(layer(x)[0], torch.nn.functional.linear(x, weight))


def test_an_int8_checkpoint_without_the_layer():
    with pytest.raises(ConfigError, match="no weight for the layer a.down_proj"):
        linear("a.down_proj", "modelslim")


def test_the_mtp_layer_goes_by_its_number():
    stored = StoredLayers("modelslim", frozenset({"model.layers.61.mlp.up_proj"}), draft_layer=61)
    assert stored.computes_int8("model.decoder.mlp.up_proj")
    assert stored.computes_int8("language_model.model.layers.61.mlp.up_proj")


def test_sglang_takes_our_method_for_int8_checkpoints():
    from sglang_ascend.quantization.config import AscendW8A8Config

    choose = AscendW8A8Config.override_quantization_method
    weights = {"num_bits": 8, "type": "int"}
    compressed = {
        "quant_method": "compressed-tensors",
        "config_groups": {"g": {"weights": weights}},
    }
    for ours in (compressed, {"quant_method": "modelslim"}, {"quant_method": "w8a8_int8"}):
        assert choose(ours, None) == "ascend_w8a8"
    weights["type"] = "float"
    for other in (compressed, {"quant_method": "fp8"}, {}):
        assert choose(other, None) is None
