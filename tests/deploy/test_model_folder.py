"""Missing, empty and unreadable model folders; unknown architectures."""

from __future__ import annotations

import json

import pytest

from sglang_ascend.deploy import architectures, model_folder
from sglang_ascend.errors import ConfigError


def test_reads_the_configuration_with_overrides(checkpoint):
    config = model_folder.read_config(checkpoint, '{"num_hidden_layers": 1}')
    assert config["num_hidden_layers"] == 1
    assert config["architectures"] == ["LlamaForCausalLM"]


def test_missing_folder(tmp_path):
    with pytest.raises(ConfigError, match="does not exist; check --model-path"):
        model_folder.read_config(tmp_path / "nothing")


def test_a_file_instead_of_a_folder(checkpoint):
    with pytest.raises(ConfigError, match="is a file; give the folder"):
        model_folder.read_config(checkpoint / "config.json")


def test_folder_without_configuration_says_what_it_holds(tmp_path):
    (tmp_path / "weights.txt").write_text("")
    with pytest.raises(ConfigError, match=r"no config.json \(it holds weights.txt\)"):
        model_folder.read_config(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"architectures": [', "is not valid JSON"),
        (b"", "is not valid JSON"),
        (b"[1]", "holds a JSON list"),
        (b"\xff\xfe\x00", "is not text"),
    ],
)
def test_broken_configuration(checkpoint, content, message):
    (checkpoint / "config.json").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        model_folder.read_config(checkpoint)


def test_broken_overrides_name_the_flag(checkpoint):
    with pytest.raises(ConfigError, match="--json-model-override-args is not valid JSON"):
        model_folder.read_config(checkpoint, "{")


def test_missing_tokenizer(checkpoint, tmp_path):
    (checkpoint / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match="has no tokenizer"):
        model_folder.check_tokenizer(checkpoint, None, skip=False)
    model_folder.check_tokenizer(checkpoint, None, skip=True)
    with pytest.raises(ConfigError, match="--tokenizer-path .* does not exist"):
        model_folder.check_tokenizer(checkpoint, str(tmp_path / "nothing"), skip=False)


def test_scan_of_entry_classes_equals_what_python_sees():
    """Single names, lists over several lines and classes named after their parents."""
    known = architectures.supported()
    assert {"LlamaForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV3ForCausalLMNextN"} <= known

    from sglang.srt.models import deepseek_v2, llama

    for module in (deepseek_v2, llama):
        entry = module.EntryClass
        classes = entry if isinstance(entry, (list, tuple)) else [entry]
        assert {cls.__name__ for cls in classes} <= known


def test_unknown_architecture_names_the_nearest():
    with pytest.raises(ConfigError, match="DeepseekV9ForCausalLM is not supported.*DeepseekV3For"):
        architectures.check({"architectures": ["DeepseekV9ForCausalLM"]})


@pytest.mark.parametrize("named", [None, [], "LlamaForCausalLM", [3]])
def test_no_architecture(named):
    with pytest.raises(ConfigError, match="names no architecture"):
        architectures.check({"architectures": named})


def test_transformers_fallback_has_to_be_asked_for():
    config = json.loads('{"architectures": ["SomethingNewForCausalLM"]}')
    with pytest.raises(ConfigError, match="--model-impl transformers"):
        architectures.check(config)
    assert architectures.check(config, model_impl="transformers") == "SomethingNewForCausalLM"
