"""SGLang's torch sampler, on the operators of the boundary.

Upstream: ``sampling_from_probs_torch`` and ``top_k_top_p_min_p_sampling_from_probs_torch`` of
``sglang.srt.layers.sampler``; same arguments and results here.
"""

from __future__ import annotations

import torch

from sglang_ascend.ops.sample import sample
from sglang_ascend.ops.sampling_filter import sampling_filter
from sglang_ascend.sampling import seeds as request_seeds


def from_probabilities(
    probs: torch.Tensor,
    sampling_seed: torch.Tensor | None = None,
    positions: torch.Tensor | None = None,
) -> torch.Tensor:
    """Draw from probs [requests, vocabulary] float32 as they are. Returns [requests] int32."""
    seeds = request_seeds.resolve(sampling_seed)
    return sample(probs, seeds, None if seeds is None else positions)


def filtered(
    original,
    probs: torch.Tensor,
    top_ks: torch.Tensor,
    top_ps: torch.Tensor,
    min_ps: torch.Tensor,
    need_min_p_sampling: bool,
    sampling_seed: torch.Tensor | None,
    positions: torch.Tensor,
    *,
    return_filtered_probs: bool = False,
    max_top_k: int | None = None,
):
    """Draw after top-k, top-p and min-p. Returns [requests] int32.

    A caller that wants the filtered probabilities as well gets upstream's own function.
    """
    if return_filtered_probs:
        return original(
            probs,
            top_ks,
            top_ps,
            min_ps,
            need_min_p_sampling,
            request_seeds.resolve(sampling_seed),
            positions,
            return_filtered_probs=True,
            max_top_k=max_top_k,
        )
    weights = sampling_filter(
        probs.log(),
        torch.ones_like(top_ps),  # temperature was applied before the softmax
        top_ks,
        top_ps,
        min_ps if need_min_p_sampling else None,
        max_top_k,
    )
    return from_probabilities(weights, sampling_seed, positions)
