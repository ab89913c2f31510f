"""Experts of one rank: permute by expert, two grouped matmuls around SwiGLU, weighted combine.

Upstream: ``UnquantizedFusedMoEMethod.forward(layer, dispatch_output)``. SGLang's own torch forward
loops over experts in Python and fails on the ``-1`` ids that expert parallelism produces.
"""

from __future__ import annotations

import torch

from sglang_ascend.errors import ConfigError
from sglang_ascend.ops.grouped_matmul import grouped_matmul
from sglang_ascend.ops.moe_permute import moe_permute
from sglang_ascend.ops.moe_unpermute import moe_unpermute
from sglang_ascend.ops.swiglu import swiglu


def forward_experts(self, layer, dispatch_output):
    """Run the local experts on dispatched tokens.

    Args:
        self: SGLang's ``UnquantizedFusedMoEMethod``.
        layer: SGLang's ``FusedMoE``: w13_weight [experts, 2 * intermediate, hidden],
            w2_weight [experts, hidden, intermediate].
        dispatch_output: hidden states [tokens, hidden] and top-k weights and ids [tokens, k]; an
            id of -1 belongs to another rank.

    Raises:
        ConfigError: for an expert layer of a kind that the operators do not cover.
    """
    from sglang.srt.layers.moe.token_dispatcher import StandardCombineInput

    check_supported(layer)
    weights, ids, _ = dispatch_output.topk_output
    hidden = dispatch_output.hidden_states
    rows, row_index, counts = moe_permute(hidden, ids, 0, layer.w13_weight.shape[0])
    down = run_experts(layer, rows, counts)
    return StandardCombineInput(hidden_states=moe_unpermute(down, row_index, weights))


def run_experts(layer, rows: torch.Tensor, tokens_per_expert: torch.Tensor) -> torch.Tensor:
    """SwiGLU experts of SGLang's ``FusedMoE`` on rows that are sorted by local expert.

    Args:
        rows: [n, hidden]. tokens_per_expert: [local experts] int64, adding up to at most n.

    Returns:
        [n, hidden], not yet weighted.
    """
    gate_up = grouped_matmul(rows, layer.w13_weight.transpose(1, 2), tokens_per_expert)
    return grouped_matmul(swiglu(gate_up), layer.w2_weight.transpose(1, 2), tokens_per_expert)


def check_supported(layer) -> None:
    """Raise ConfigError for an expert layer of a kind that the operators do not cover."""
    config, bias = layer.moe_runner_config, layer.with_bias
    if config.activation != "silu" or config.apply_router_weight_on_input or bias:
        raise ConfigError(
            f"experts with activation {config.activation!r}, router weight on input "
            f"{config.apply_router_weight_on_input}, bias {bias} are not supported; "
            "supported: SwiGLU experts without bias, weighted at the output"
        )
