"""`quantize --smooth`: scales change no answer in float, and what is written carries them."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from sglang_ascend import quantize
from sglang_ascend.deploy import safetensors_header
from sglang_ascend.deploy.int8_layers import takes_int8
from sglang_ascend.errors import ConfigError
from sglang_ascend.plugin import torchvision_ops
from sglang_ascend.quantization import calibration, smoothing
from sglang_ascend.quantization.weights import dequantise_weight, quantise_weight
from tests.quantization.conftest import CONFIG

WORDS = [f"w{index}" for index in range(40)]
OUTLIER = 3


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def llama_folder(request, tmp_path):
    """Random weights in two files, with an outlier channel in each norm and in up_proj."""
    torchvision_ops.declare_if_missing()
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS) + 1,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        mlp_bias=True,
        tie_word_embeddings=False,
        initializer_range=0.1,
    )
    model = LlamaForCausalLM(config)
    for name, parameter in model.named_parameters():
        if "layernorm" in name:
            parameter.data.uniform_(0.5, 1.5)
        if "layernorm" in name or name.endswith("up_proj.weight"):
            parameter.data[OUTLIER] *= 30
        if name.endswith("bias"):
            parameter.data.normal_()
    folder = tmp_path / "llama"
    model.to(request.param).save_pretrained(folder)
    # A norm and the projections behind it lie in different files.
    whole = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    where = {name: "b" if "norm" in name else "a" for name in whole}
    where = {name: f"{file}.safetensors" for name, file in where.items()}
    for file in set(where.values()):
        part = {name: tensor for name, tensor in whole.items() if where[name] == file}
        save_file(part, folder / file, metadata={"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": where})
    )
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate([*WORDS, "?"])}, "?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "?"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    # Two passes; the second sees few of the words.
    path.write_text(" ".join([*WORDS * 13, *["w1"] * 100]))
    return path


def calibrate(folder, text, alpha=0.5):
    config = json.loads((folder / "config.json").read_text())
    tensors = [t for path in folder.glob("*.safetensors") for t in safetensors_header.read(path)]
    return smoothing.calibrate(folder, config, tensors, text, alpha)


@torch.inference_mode()
def logits(model, ids):
    return model(ids).logits


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_scales_change_no_answer_in_float(llama_folder, text, alpha):
    model = calibration.float_model(llama_folder)
    ids = torch.arange(30)[None].flip(1)
    before = logits(model, ids)
    factors = calibrate(llama_folder, text, alpha).factors
    # Of each layer: two norms, every projection but o_proj, the bias of up_proj.
    assert len(factors) == 2 * (2 + 6 + 1)
    smoothing.fold(model, factors)
    torch.testing.assert_close(logits(model, ids), before, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_the_scale_is_that_of_the_paper(llama_folder, text):
    """s = max|x|^alpha / max|w|^(1 - alpha), over both passes and all readers of the input."""
    model = calibration.float_model(llama_folder)
    layer, inputs = model.model.layers[1], {}

    def note(name):
        return lambda module, args: inputs.setdefault(name, []).append(args[0].flatten(0, -2))

    readers = {"self_attn.q_proj": layer.self_attn.q_proj, "mlp.gate_proj": layer.mlp.gate_proj}
    for name, module in readers.items():
        module.register_forward_pre_hook(note(name))
    for ids in calibration.tokens("", text, llama_folder, 2048).split(512, dim=1):
        model(ids)
    factors = calibrate(llama_folder, text, 0.75).factors
    up = layer.mlp.up_proj.weight / factors["model.layers.1.mlp.down_proj.weight"].columns[:, None]
    weights = {
        "self_attn.q_proj": [getattr(layer.self_attn, f"{part}_proj").weight for part in "qkv"],
        "mlp.gate_proj": [layer.mlp.gate_proj.weight, up],
    }
    for name, parts in weights.items():
        peak = torch.cat(inputs[name]).abs().amax(0)
        expected = peak**0.75 / torch.cat(parts).abs().amax(0) ** 0.25
        found = factors[f"model.layers.1.{name}.weight"].columns
        # Rounding a bfloat16 norm moves its scale by up to 2**-8.
        torch.testing.assert_close(found, expected, rtol=2**-8, atol=0)


def test_what_is_written_computes_the_same_and_has_smaller_errors(llama_folder, text, tmp_path):
    out, plain = tmp_path / "out", tmp_path / "plain"
    common = ["--calibrate", str(text)]
    assert quantize.main([str(llama_folder), str(plain), *common]) == 0
    assert quantize.main([str(llama_folder), str(out), *common, "--smooth", str(text)]) == 0
    errors = [
        json.loads((folder / "quantize_report.json").read_text())["layers"]
        for folder in (plain, out)
    ]
    for layer in errors[0]:
        if layer.endswith(("q_proj", "gate_proj", "down_proj")):
            assert errors[1][layer]["output"] < errors[0][layer]["output"] / 2, layer

    model = calibration.float_model(llama_folder)
    ids = torch.arange(30)[None].flip(1)
    smoothing.fold(model, calibrate(llama_folder, text).factors)
    parameters = dict(model.named_parameters())
    source = {k: v for p in llama_folder.glob("*.safetensors") for k, v in load_file(p).items()}
    written = {k: v for p in out.glob("*.safetensors") for k, v in load_file(p).items()}
    assert (set(written) & set(source)) == set(source)
    for name in source:
        layer = name.removesuffix(".weight")
        if layer != name and takes_int8(layer):
            q, scale = quantise_weight(parameters[name].data)
            assert torch.equal(written[name], q), name
            parameters[name].data = dequantise_weight(q, scale)
        else:
            assert written[name].dtype == source[name].dtype, name
            parameters[name].data = written[name].float()
    before = logits(calibration.float_model(llama_folder), ids)
    after = logits(model, ids)
    assert float((after - before).norm() / before.norm()) < 0.05


def test_a_norm_loses_nothing_when_it_is_stored(llama_folder, text):
    norms = load_file(llama_folder / "b.safetensors")
    factors = calibrate(llama_folder, text).factors
    for name in norms.keys() & factors.keys():
        exact = factors[name].apply(norms[name])
        stored = exact.to(norms[name].dtype).float()
        torch.testing.assert_close(stored, exact, rtol=1e-6, atol=0)
        assert not torch.equal(stored, norms[name].float())


def test_other_scales_are_not_resumed(llama_folder, text, tmp_path, capsys):
    out = str(tmp_path / "out")
    arguments = [str(llama_folder), out, "--smooth", str(text)]
    assert quantize.main(arguments) == 0 and quantize.main(arguments) == 0
    assert quantize.main([*arguments, "--alpha", "0.6"]) == 2
    assert "'alpha': 0.5" in capsys.readouterr().err
    assert quantize.main([str(llama_folder), out]) == 2
    text.write_text(text.read_text() + " w1")
    assert quantize.main(arguments) == 2


def test_bad_input(llama_folder, float_folder, text, tmp_path, capsys):
    out = tmp_path / "out"

    def error(folder, *arguments):
        assert quantize.main([str(folder), str(out), *arguments]) == 2
        return capsys.readouterr().err

    missing = error(llama_folder, "--smooth", str(tmp_path / "none.txt"))
    assert "none.txt cannot be read" in missing
    for alpha in ("-0.1", "1.5", "nan"):
        found = error(llama_folder, "--smooth", str(text), "--alpha", alpha)
        assert f"--alpha {alpha} is outside 0..1" in found
    assert "--alpha needs --smooth" in error(llama_folder, "--alpha", "0.5")
    assert "does not take DeepseekV3ForCausalLM" in error(float_folder, "--smooth", str(text))
    text.write_text("")
    assert "has no text" in error(llama_folder, "--smooth", str(text))
    assert not out.exists()


def test_a_model_without_a_norm_is_refused():
    config = {**CONFIG, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1}
    with pytest.raises(ConfigError, match="needs model.layers.0.mlp.up_proj.weight, which"):
        smoothing.plan(config, [])
