"""The gate: top-k experts of each token, behind SGLang's routing functions.

SGLang's ``select_experts`` keeps its work around the choice (expert placement, capture, padding);
only the two functions that score and choose are ours.
"""

from __future__ import annotations

import torch

from sglang_ascend.errors import ConfigError
from sglang_ascend.ops.gate_topk_grouped_sigmoid import gate_topk_grouped_sigmoid
from sglang_ascend.ops.gate_topk_softmax import gate_topk_softmax


def grouped_sigmoid(
    hidden_states: torch.Tensor,
    gating_output: torch.Tensor,
    correction_bias: torch.Tensor,
    topk: int,
    renormalize: bool,
    num_expert_group: int = 1,
    topk_group: int = 1,
    num_fused_shared_experts: int = 0,
    routed_scaling_factor: float | None = None,
    apply_routed_scaling_factor_on_output: bool | None = False,
    **_,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Replaces ``sglang.srt.layers.moe.topk.biased_grouped_topk``: DeepSeek-V3's gate.

    Returns:
        weights [tokens, topk] float32 and expert ids [tokens, topk] int32.
    """
    if num_fused_shared_experts:
        raise ConfigError(
            "shared experts fused into the routed ones are not supported; "
            "start with --disable-shared-experts-fusion"
        )
    scale = routed_scaling_factor if apply_routed_scaling_factor_on_output else 1.0
    return gate_topk_grouped_sigmoid(
        gating_output,
        correction_bias,
        topk,
        num_expert_group,
        topk_group,
        renormalize,
        1.0 if scale is None else scale,
    )


def softmax(
    original,
    hidden_states: torch.Tensor,
    gating_output: torch.Tensor,
    topk: int,
    renormalize: bool,
    correction_bias: torch.Tensor | None = None,
    scoring_func: str = "softmax",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Around ``sglang.srt.layers.moe.topk.fused_topk_native``: plain softmax gates are ours.

    Gates with another score or a bias keep SGLang's torch function.
    """
    if scoring_func != "softmax" or correction_bias is not None:
        return original(
            hidden_states, gating_output, topk, renormalize, correction_bias, scoring_func
        )
    return gate_topk_softmax(gating_output, topk, renormalize)
