"""Absorbed or expanded: the choice for each kind of step."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

V3 = SimpleNamespace(
    num_local_heads=128,
    kv_lora_rank=512,
    qk_rope_head_dim=64,
    qk_nope_head_dim=128,
    v_head_dim=128,
    w_kc=torch.empty(0, dtype=torch.bfloat16),
)


@pytest.fixture(scope="module")
def choose():
    from sglang.srt.model_executor.forward_batch_info import ForwardMode

    from sglang_ascend.attention.mla_method import choose_method

    def run(mode, query_lens=None, kv_lens=(100,)):
        batch = SimpleNamespace(
            forward_mode=ForwardMode[mode],
            extend_seq_lens_cpu=query_lens,
            seq_lens_cpu=torch.tensor(kv_lens),
        )
        return choose_method(V3, batch).name

    return run


def test_decode_and_verify_are_absorbed(choose):
    assert choose("DECODE") == "MLA"
    assert choose("TARGET_VERIFY") == "MLA"


def test_a_long_prefill_is_expanded(choose):
    assert choose("EXTEND", [2048], [2048]) == "MHA"


def test_a_few_tokens_behind_a_long_prefix_are_absorbed(choose):
    assert choose("EXTEND", [4], [32768]) == "MLA"


def test_more_queries_than_the_absorbed_operator_takes_are_expanded(choose):
    assert choose("EXTEND", [17], [32768]) == "MHA"
