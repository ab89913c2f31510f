"""Experts of one rank: permute by expert, two grouped matmuls around SwiGLU, weighted combine.

In INT8, rows are quantised one by one before each of the two products.

Upstream: ``UnquantizedFusedMoEMethod.forward(layer, dispatch_output)``. SGLang's own torch forward
loops over experts in Python and fails on the ``-1`` ids that expert parallelism produces.
"""

from __future__ import annotations

import torch

from sglang_ascend.errors import ConfigError
from sglang_ascend.ops.dynamic_quant import dynamic_quant
from sglang_ascend.ops.grouped_matmul import grouped_matmul
from sglang_ascend.ops.moe_permute import moe_permute
from sglang_ascend.ops.moe_unpermute import moe_unpermute
from sglang_ascend.ops.quant_grouped_matmul import quant_grouped_matmul
from sglang_ascend.ops.swiglu import swiglu
from sglang_ascend.ops.swiglu_quant import swiglu_quant


def forward_experts(self, layer, dispatch_output):
    """Run the local experts on dispatched tokens.

    Args:
        self: the quantisation method of the layer.
        layer: SGLang's ``FusedMoE``: w13_weight [experts, 2 * intermediate, hidden],
            w2_weight [experts, hidden, intermediate]; in INT8 see ``run_experts``.
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
        layer: in float as SGLang has it; with INT8 weights, w13_weight [experts, hidden, 2 *
            intermediate] and w2_weight [experts, intermediate, hidden] int8 beside
            w13_weight_scale and w2_weight_scale [experts, out] float32.
        rows: [n, hidden]. tokens_per_expert: [local experts] int64, adding up to at most n.

    Returns:
        [n, hidden], not yet weighted.
    """
    if layer.w13_weight.dtype == torch.int8:
        return _run_int8_experts(layer, rows, tokens_per_expert)
    gate_up = grouped_matmul(rows, layer.w13_weight.transpose(1, 2), tokens_per_expert)
    return grouped_matmul(swiglu(gate_up), layer.w2_weight.transpose(1, 2), tokens_per_expert)


def _run_int8_experts(layer, rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    q, scale = dynamic_quant(rows)
    gate_up = quant_grouped_matmul(
        q, scale, layer.w13_weight, layer.w13_weight_scale, counts, rows.dtype
    )
    q, scale = swiglu_quant(gate_up, counts)
    return quant_grouped_matmul(
        q, scale, layer.w2_weight, layer.w2_weight_scale, counts, rows.dtype
    )


def check_supported(layer) -> None:
    """Raise ConfigError for an expert layer of a kind that the operators do not cover."""
    config, bias = layer.moe_runner_config, layer.with_bias
    if config.activation != "silu" or config.apply_router_weight_on_input or bias:
        raise ConfigError(
            f"experts with activation {config.activation!r}, router weight on input "
            f"{config.apply_router_weight_on_input}, bias {bias} are not supported; "
            "supported: SwiGLU experts without bias, weighted at the output"
        )
