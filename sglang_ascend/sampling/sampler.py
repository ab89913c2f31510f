"""SGLang's torch sampler, on the operators of the boundary.

Upstream: ``sampling_from_probs_torch`` and ``top_k_top_p_min_p_sampling_from_probs_torch`` of
``sglang.srt.layers.sampler``, and the greedy part of its ``Sampler.forward``; same arguments and
results here.
"""

from __future__ import annotations

import torch

from sglang_ascend.native import rows
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


def only_greedy(sampling_info, return_logprob: bool) -> bool:
    """Whether all that a sampler is asked for is the largest of the logits that it is given."""
    return (
        sampling_info.is_all_greedy
        and not return_logprob
        and sampling_info.sampling_mask_batch_indices is None
        and not sampling_info.has_custom_logit_processor
    )


def greedy(
    original,
    self,
    logits_output,
    sampling_info,
    return_logprob: bool,
    *args,
    logprob_logits: torch.Tensor | None = None,
) -> torch.Tensor:
    """Around ``Sampler.forward``: [requests] int64 of the largest logits, if that is all."""
    logits = logits_output.next_token_logits
    plain = only_greedy(sampling_info, return_logprob) and logprob_logits is None
    if plain and rows.dense_rows(logits):
        chosen = rows.argmax(self._preprocess_logits(logits, sampling_info))
        if chosen is not NotImplemented:
            self._sync_token_ids_across_tp(chosen, sampling_info)
            return chosen
    return original(
        self, logits_output, sampling_info, return_logprob, *args, logprob_logits=logprob_logits
    )
