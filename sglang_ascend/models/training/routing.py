"""Expert load and its auxiliary-loss-free balancing (DeepSeek-V3 technical report, 2.1.2)."""

from __future__ import annotations

import torch
from torch import nn

_BAND = (0.4, 1.8)


def gates(module: nn.Module) -> list[nn.Module]:
    """The routers of ``module``, in layer order."""
    return [each for each in module.modules() if hasattr(each, "e_score_correction_bias")]


def count_load(module: nn.Module) -> None:
    """Let every router count the tokens of each expert in ``expert_load``, int64 [experts]."""
    for gate in gates(module):
        gate.register_buffer(
            "expert_load", torch.zeros(gate.num_experts, dtype=torch.int64), persistent=False
        )
        gate.register_forward_hook(_count)


def _count(gate, _inputs, output) -> None:
    chosen = torch.nn.functional.one_hot(output[2], gate.num_experts)
    gate.expert_load.add_(chosen.sum(dim=(0, 1)))


@torch.no_grad()
def update_bias(module: nn.Module, speed: float) -> list[float]:
    """Move the bias of experts far from the mean load by ``speed``; restart the counts.

    DeepSeek-V3 moves every expert's bias at each step. Here only loads outside ``_BAND`` times the
    mean count as unbalanced: experts do not die, and the load keeps the unevenness of the text.
    Returns each router's load skew, max / mean, since the last call.
    """
    skews = []
    for gate in gates(module):
        load = gate.expert_load / gate.expert_load.float().mean()
        direction = (load < _BAND[0]).float() - (load > _BAND[1]).float()
        gate.e_score_correction_bias.add_(speed * direction)
        skews.append(load.max().item())
        gate.expert_load.zero_()
    return skews
