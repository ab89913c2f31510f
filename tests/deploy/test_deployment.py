"""Deployment files: read, written, checked; and what a rank of one holds."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_ascend.comm.hardware import load_hardware
from sglang_ascend.comm.topology import Topology
from sglang_ascend.deploy import (
    deployment_check,
    deployment_file,
    deployment_memory,
    deployment_shape,
    memory,
)
from sglang_ascend.deploy.deployment import (
    Deployment,
    Features,
    Phase,
    Precision,
    Role,
    Speculation,
    Transport,
)
from sglang_ascend.errors import ConfigError
from sglang_ascend.models.catalog import resolve

KNOWN = sorted(path.stem for path in deployment_file.folder().glob("*.yaml"))
INT8 = Precision("int8", "int8", "bf16")


@pytest.mark.parametrize("name", KNOWN)
def test_every_deployment_that_we_ship_can_be(name):
    deployment = deployment_file.read(name)
    assert deployment.name == name
    deployment_check.check(deployment)
    content = deployment_file.read_yaml_text(deployment_file.dump(deployment))
    assert deployment_file.parse(content, name) == deployment


ROLES = st.builds(
    Role,
    st.sampled_from([Phase.PREFILL, Phase.DECODE]),
    st.builds(Topology, st.integers(1, 9), st.integers(1, 8), st.just(1)),
    instances=st.integers(1, 5),
    attention_tp=st.integers(1, 16),
    redundant_experts=st.integers(0, 64),
    transport=st.sampled_from(Transport),
    requests_per_rank=st.none() | st.floats(0.5, 500),
    batch_tokens=st.none() | st.integers(1, 1 << 20),
    features=st.builds(Features, micro_batches=st.integers(1, 2), prefetch=st.booleans()),
)


@settings(max_examples=60, deadline=None)
@given(ROLES, st.integers(0, 3), st.floats(0, 1))
def test_what_is_written_is_what_is_read(role, drafts, acceptance):
    speculation = Speculation(drafts, acceptance if drafts else 0.0)
    own = Deployment("x", "deepseek-r1", "a2_910b_313t", INT8, speculation, (role,))
    content = deployment_file.read_yaml_text(deployment_file.dump(own))
    assert deployment_file.parse(content, "x") == own


A2 = """
model: deepseek-r1
hardware: a2_910b_313t
precision: {weights: int8, activations: int8}
roles:
  decode: {nodes: 4, redundant_experts: 32, transport: allgather}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("nodes: 4", "nods: 4", "unknown key 'nods'; did you mean nodes"),
        ("nodes: 4", "nodes: four", "give a value of type int"),
        ("nodes: 4", "nodes: true", "give a value of type int"),
        ("decode:", "decoder:", "did you mean decode"),
        ("allgather", "all2all", "choose one of allgather, dispatch"),
        ("a2_910b_313t", "a2_910b_333t", "did you mean a2_910b_313t"),
        ("deepseek-r1", "deepseek-r2", "nearest: deepseek-r1"),
        ("redundant_experts: 32", "redundant_experts: 30", "nearest: redundant_experts 0"),
        ("nodes: 4", "nodes: 4, attention_tp: 5", "nearest: 4"),
        ("nodes: 4", "nodes: 1", "the largest part is routed experts"),
        ("nodes: 4", "nodes: 4, requests_per_rank: 1000000", "largest part is communication"),
        ("nodes: 4", "nodes: 4, shared_ranks: 2", "needs all three"),
        ("nodes: 4", "nodes: 4, features: {micro_batches: 3}", "choose 1 .none. or 2"),
        ("activations: int8", "activations: fp8", "has no fp8 matrix multiplication"),
        ("weights: int8", "weights: int7", "'int7' is unknown"),
        ("weights: int8", "weights: int8, kv: int4", "packs two elements a byte"),
        ("roles:", "speculation: {draft_tokens: 1, acceptance: 7}\nroles:", "a share from 0 to 1"),
        ("model: deepseek-r1\n", "", "lacks model"),
    ],
)
def test_what_cannot_be_is_refused(old, new, message, tmp_path):
    assert old in A2
    path = tmp_path / "d.yaml"
    path.write_text(A2)
    deployment_check.check(deployment_file.read(path))
    path.write_text(A2.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        deployment_check.check(deployment_file.read(path))


def test_dense_models_have_no_experts_to_spread(tmp_path):
    path = tmp_path / "d.yaml"
    path.write_text(A2.replace("deepseek-r1", "qwen3-32b").replace("allgather", "dispatch"))
    with pytest.raises(ConfigError, match="has no experts to copy"):
        deployment_check.check(deployment_file.read(path))
    many = A2.replace("deepseek-r1", "qwen3-32b").replace("redundant_experts: 32,", "")
    path.write_text(many.replace("nodes: 4", "nodes: 4, requests_per_rank: 1000000"))
    with pytest.raises(ConfigError, match="do not fit into a KV pool of .* lower requests"):
        deployment_check.check(deployment_file.read(path))


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("deepseek-v3", 671),
        ("kimi-k2", 1026),
        ("qwen3-235b-a22b", 235),
        ("qwen3-30b-a3b", 30.5),
        ("qwen3-32b", 32.8),
        ("qwen2.5-72b", 72.7),
        ("smollm2-135m-instruct", 0.1345),
        ("llama-3.1-8b", 8.03),
        ("llama-3.1-70b", 70.6),
    ],
)
def test_built_in_models_have_the_size_in_their_name(name, billions):
    assert deployment_shape.load(name).parameters / 1e9 == pytest.approx(billions, rel=0.01)


@pytest.mark.parametrize("name", ["tiny-deepseek-v3", str(resolve("tiny-deepseek-v3"))])
def test_a_model_folder_gives_its_own_shape(name):
    shape = deployment_shape.load(name)
    assert (shape.layers, shape.dense_layers, shape.experts, shape.top_k) == (3, 1, 16, 4)
    assert shape.is_mla and shape.head_dim == 96


def test_weights_of_an_a2_card_are_those_of_the_report():
    """Experts 23 GB, attention 11.4, embeddings 3.7, dense layers 1.2, without the draft."""
    deployment = deployment_file.read("a2_decode_32")
    shape, hardware = deployment_shape.load("deepseek-r1"), load_hardware("a2_910b_280t")
    budget = deployment_memory.of_rank(shape, INT8, deployment.roles[0], hardware)
    gb = {name: size / 1e9 for name, size in budget.parts.items()}
    assert gb["routed experts"] == pytest.approx(23, rel=0.02)
    assert gb["attention"] == pytest.approx(11.4, rel=0.02)
    assert gb["embeddings and head"] == pytest.approx(3.7, rel=0.02)
    assert gb["dense layers"] == pytest.approx(1.2, rel=0.02)


def test_pool_is_what_preflight_would_allow():
    deployment = deployment_file.read("a2_decode_32")
    shape, hardware = deployment_shape.load("deepseek-r1"), load_hardware("a2_910b_280t")
    role = dataclasses.replace(deployment.roles[0], memory_fraction=0.8)
    budget = deployment_memory.of_rank(shape, INT8, role, hardware)
    per_token = memory.kv_bytes_per_token(shape.config, 2, 1)
    assert budget.kv_bytes_per_token == per_token == 61 * 576 * 2
    taken = sum(budget.parts.values())
    assert budget.kv_tokens == memory.pool_tokens(budget.usable, taken, per_token)
    assert budget.kv_tokens * per_token <= budget.usable - taken
    assert (budget.kv_tokens + 1) * per_token > budget.usable - taken


def test_a_draft_layer_takes_weights_and_cache():
    deployment = deployment_file.read("a2_decode_32")
    shape, hardware = deployment_shape.load("deepseek-r1"), load_hardware("a2_910b_280t")
    without, with_draft = (
        deployment_memory.of_rank(shape, INT8, deployment.roles[0], hardware, drafts)
        for drafts in (0, 1)
    )
    assert with_draft.weight_bytes > without.weight_bytes
    assert with_draft.kv_bytes_per_token == without.kv_bytes_per_token * 62 // 61


def test_check_as_a_command(tmp_path):
    def run(file):
        return subprocess.run(
            [sys.executable, "-m", "sglang_ascend.deploy", "check", file],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    good = run("a2_pd_48")
    assert good.returncode == 0 and "KV pool" in good.stdout, good.stderr
    path = tmp_path / "d.yaml"
    path.write_text("model: [")
    bad = run(str(path))
    assert bad.returncode == 2 and bad.stderr.startswith("refused: ") and "not YAML" in bad.stderr
    assert bad.stderr.count("\n") == 1
