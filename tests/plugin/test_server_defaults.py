"""Defaults for whatever the user left open, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sglang_ascend.attention.backend_name import ATTENTION_BACKEND
from sglang_ascend.deploy.expert_parallel import EP_BACKEND
from sglang_ascend.errors import ConfigError
from sglang_ascend.plugin.server_defaults import (
    COLLECTIVE_TIMEOUT_S,
    DEFAULT_POOL_TOKENS,
    apply_defaults,
)


def arguments(**given):
    unset = {
        "attention_backend": None,
        "prefill_attention_backend": None,
        "decode_attention_backend": None,
        "sampling_backend": None,
        "page_size": None,
        "max_total_tokens": None,
        "dtype": "auto",
        "tp_size": 1,
        "ep_size": 1,
        "moe_a2a_backend": "none",
        "dist_timeout": None,
        "boundary_reduction": "auto",
    }
    return SimpleNamespace(**{**unset, **given})


def test_reference_defaults():
    args = arguments(attention_backend="intel_amx")
    apply_defaults(args, "reference")
    assert args.attention_backend == ATTENTION_BACKEND
    assert args.decode_attention_backend is None
    assert (args.page_size, args.dtype) == (1, "float32")
    assert args.max_total_tokens == DEFAULT_POOL_TOKENS


def test_npu_replaces_upstreams_backend_in_every_phase():
    args = arguments(
        attention_backend="ascend",
        prefill_attention_backend="ascend",
        decode_attention_backend="ascend",
    )
    apply_defaults(args, "npu")
    assert args.attention_backend == args.prefill_attention_backend == ATTENTION_BACKEND
    assert args.decode_attention_backend == ATTENTION_BACKEND
    assert (args.page_size, args.dtype, args.max_total_tokens) == (128, "auto", None)


def test_what_the_user_gave_stays():
    args = arguments(page_size=64, dtype="bfloat16", max_total_tokens=1000)
    apply_defaults(args, "reference")
    assert (args.page_size, args.dtype, args.max_total_tokens) == (64, "bfloat16", 1000)


def test_a_backend_that_cannot_run_is_refused():
    with pytest.raises(ConfigError, match="--decode-attention-backend triton"):
        apply_defaults(arguments(decode_attention_backend="triton"), "reference")


def test_experts_spread_over_all_ranks_go_through_our_transports():
    args = arguments(tp_size=4, ep_size=4)
    apply_defaults(args, "reference")
    assert args.moe_a2a_backend == EP_BACKEND
    assert args.boundary_reduction == "ar" and args.dist_timeout == COLLECTIVE_TIMEOUT_S


@pytest.mark.parametrize("sizes", [{"tp_size": 4}, {"tp_size": 4, "ep_size": 2}])
def test_other_layouts_sum_over_all_ranks(sizes):
    args = arguments(**sizes, dist_timeout=60, boundary_reduction="rs")
    apply_defaults(args, "npu")
    assert args.moe_a2a_backend == "none"
    assert args.boundary_reduction == "rs" and args.dist_timeout == 60
