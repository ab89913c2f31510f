"""SGLang runs on device npu over the real torch_npu: platform, pools, attention, experts, sampler.

The stand-in holds the tensors and the CPU computes (`npu_on_cpu.py`), so the tokens are meant.
"""

from __future__ import annotations

import pytest

from sglang_ascend.models import catalog
from tests.contract.decode_steps_prompts import NEW_TOKENS, PROMPTS
from tests.support.reference import Reference


@pytest.fixture(scope="module")
def run(on_torch_npu) -> dict:
    return on_torch_npu("tests.contract.decode_steps", soc="910B")


def test_every_method_of_the_platform_answers(run):
    assert run["platform"] == {
        "class": "NpuPlatform",
        "device": "npu:0",
        "name": "Ascend910B3",
        "total bytes": str(2**36),
        "free and total bytes": f"({15 * 2**32}, {2**36})",
        "bytes in use": "0.0",
        "group device": "npu:0",
        "profiler": "ProfilerActivity.NPU",
    }


def test_prefill_and_decode_give_the_tokens_of_transformers(run):
    reference = Reference(catalog.resolve("tiny-deepseek-v3"))
    for prompt, tokens in zip(PROMPTS, run["tokens"], strict=True):
        assert tokens == reference.greedy(prompt, NEW_TOKENS).ids


def test_every_layer_went_through_torch_npu(run):
    assert (run["device"], run["backend"]) == ("npu", "PagedAttentionBackend")
    layers, steps = 3, NEW_TOKENS
    for operator, calls_a_layer in {
        "npu_fused_infer_attention_score": 1,
        "npu_scatter_pa_kv_cache": 1,
        "npu_add_rms_norm": 2,
    }.items():
        assert run["calls"][f"npu::{operator}"] == calls_a_layer * layers * steps
    experts = {
        name: run["calls"][f"npu::npu_{name}"]
        for name in ("moe_gating_top_k", "moe_init_routing_v2", "moe_finalize_routing")
    }
    assert set(experts.values()) == {2 * steps}
