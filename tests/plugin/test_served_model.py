"""Only the model files of the served checkpoint are imported; any other one is still found."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from sglang_ascend.plugin import served_model

REGISTRY = """
import json, sys
from sglang.srt.models.registry import ModelRegistry

before = sum(name.startswith("sglang.srt.models.") for name in sys.modules)
known, _ = ModelRegistry.resolve_model_cls(["DeepseekV3ForCausalLM"])
draft, _ = ModelRegistry.resolve_model_cls(["DeepseekV3ForCausalLMNextN"])
after = sum(name.startswith("sglang.srt.models.") for name in sys.modules)
print(json.dumps([known.__module__, draft.__module__, before, after]))

# An architecture that was not announced: SGLang's own search finds it.
ModelRegistry._load_default_models = lambda: ModelRegistry.models.update(
    Qwen3ForCausalLM=__import__("sglang.srt.models.qwen3", fromlist=["x"]).Qwen3ForCausalLM
)
print(ModelRegistry.resolve_model_cls(["Qwen3ForCausalLM"])[0].__name__)
"""


def test_the_registry_imports_the_files_of_one_architecture():
    environ = {**os.environ, "SGLANG_PLATFORM": "ascend", "SGLANG_ASCEND_DEVICE": "reference"}
    environ[served_model.PACKAGE_ENV] = served_model.__name__
    environ[served_model.ARCHITECTURES_ENV] = "DeepseekV3ForCausalLM"
    out = subprocess.run(
        [sys.executable, "-c", REGISTRY], capture_output=True, text=True, timeout=300, env=environ
    )
    assert out.returncode == 0, out.stderr[-2000:]
    known, draft, before, after = json.loads(out.stdout.splitlines()[-2])
    assert known == "sglang.srt.models.deepseek_v2"
    assert draft == "sglang.srt.models.deepseek_nextn"
    assert after == before < 60
    assert out.stdout.splitlines()[-1] == "Qwen3ForCausalLM"


def test_the_index_reads_both_ways_to_name_classes(tmp_path):
    (tmp_path / "one.py").write_text("class A: pass\nEntryClass = A\n")
    (tmp_path / "two.py").write_text("EntryClass = [\n    B,\n    C,\n]\n")
    (tmp_path / "three.py").write_text("EntryClass = make()\n")
    os.environ.pop(served_model.ARCHITECTURES_ENV, None)
    from sglang_ascend.plugin.served_model import entry

    found = entry.index(tmp_path)
    assert {"A": "one", "B": "two", "C": "two"}.items() <= found.items()


def test_an_unknown_architecture_is_left_to_sglang():
    from sglang_ascend.plugin.served_model import entry

    assert entry.find(["LlamaForCausalLM", "NobodyForCausalLM"]) == []


def test_what_is_published(tmp_path):
    environ: dict[str, str] = {}
    served_model.publish(str(tmp_path), environ)
    assert environ == {}
    (tmp_path / "config.json").write_text(json.dumps({"architectures": None}))
    served_model.publish(str(tmp_path), environ)
    assert environ == {}
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["A", "B"]}))
    served_model.publish(str(tmp_path), environ)
    assert environ == {
        served_model.PACKAGE_ENV: served_model.__name__,
        served_model.ARCHITECTURES_ENV: "A,B",
    }


def test_the_users_own_package_stays(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["A"]}))
    environ = {served_model.PACKAGE_ENV: "mine"}
    served_model.publish(str(tmp_path), environ)
    assert environ == {served_model.PACKAGE_ENV: "mine"}
