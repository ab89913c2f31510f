"""Ranks of their own for the shared expert, as on CloudMatrix 384 (arXiv 2506.12708).

The first ranks of the group hold the shared expert and no routed ones; the others hold the routed
experts and not the shared one. SGLang builds the same model on every rank, so each rank drops what
is not its own after loading.
"""

from __future__ import annotations

import torch

from sglang_ascend.errors import ConfigError
from sglang_ascend.moe import settings
from sglang_ascend.moe.dispatch.placement import ExpertPlacement
from sglang_ascend.native import int8


def expert_layer_init(original, layer, num_experts: int, *args, **kwargs) -> None:
    """Around ``FusedMoE.__init__``: experts are spread over the routed ranks only.

    SGLang has the same arithmetic for groups that grow at run time: a group of another size for the
    experts' storage, and an offset between the rank and its place in it.
    """
    shared = settings.current().shared_ranks
    if not shared:
        return original(layer, num_experts, *args, **kwargs)
    from sglang.srt.runtime_context import get_exec, get_parallel

    parallel = get_parallel()
    placement = ExpertPlacement(parallel.moe_ep_size, num_experts, shared)
    with (
        get_exec().moe.override(ep_join_mode="scale"),
        parallel.override(
            elastic_ep_initial_size=placement.routed_ranks, ep_join_rank_offset=-shared
        ),
    ):
        original(layer, num_experts, *args, **kwargs)
    # The shared output is added within the dispatch, so nothing may scale the sum afterwards.
    layer.should_fuse_routed_scaling_factor_in_topk = True


def expert_location_init(original, runner) -> None:
    """Around ``ModelRunner.maybe_init_expert_location_metadata``: see ``expert_layer_init``."""
    shared = settings.current().shared_ranks
    if not shared:
        return original(runner)
    from sglang.srt.runtime_context import get_parallel

    parallel = get_parallel()
    with parallel.override(ep_size=parallel.ep_size - shared):
        original(runner)


def shared_output(original, moe, hidden_states, *args, **kwargs):
    """Around ``DeepseekV2MoE._forward_shared_experts``: nothing to add, the dispatch does."""
    if settings.current().shared_ranks:
        return None
    return original(moe, hidden_states, *args, **kwargs)


def settle(model: torch.nn.Module, placement: ExpertPlacement, rank: int) -> None:
    """Drop the weights that are not this rank's, and tell the expert layers of the shared expert.

    Raises:
        ConfigError: a model without a shared expert, or whose layers are not DeepSeek's.
    """
    from sglang.srt.models.deepseek_v2 import DeepseekV2MoE

    blocks = [module for module in model.modules() if isinstance(module, DeepseekV2MoE)]
    if not blocks or any(block.shared_experts is None for block in blocks):
        raise ConfigError(
            f"--ep-shared-expert-ranks {placement.shared_ranks} needs a DeepSeek-V2/V3 model with "
            "a shared expert; drop the flag"
        )
    for block in blocks:
        dropped = block.shared_experts
        if placement.is_shared(rank):
            # Past torch's registry: the module already has a place in the model.
            object.__setattr__(block.experts, "shared_apart", block.shared_experts)
            dropped = block.experts
        for parameter in dropped.parameters():
            int8.release(parameter)
            parameter.data = parameter.data.new_empty(0)
