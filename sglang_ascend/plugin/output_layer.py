"""SGLang's output layer on the native float32 kernels, and screened where only the largest counts.

Upstream: ``LogitsProcessor.forward`` prunes hidden states to the rows that are sampled and calls
``_compute_lm_head`` for them. What the batch wants of its logits is known to the first alone.
"""

from __future__ import annotations

import os
from contextlib import contextmanager

import torch

from sglang_ascend.native import screening
from sglang_ascend.plugin import float_linear
from sglang_ascend.sampling.sampler import only_greedy

#: 0 computes every logit, whoever reads it.
SCREEN_ENV = "SGLANG_ASCEND_SCREEN_HEAD"

_largest_only = False


def forward(original, self, input_ids, hidden_states, lm_head, logits_metadata, *args, **kwargs):
    """Around ``LogitsProcessor.forward``: notes whether all that is wanted are greedy choices."""
    with _noted(_wants_largest_only(self, logits_metadata)):
        return original(self, input_ids, hidden_states, lm_head, logits_metadata, *args, **kwargs)


def lm_head(original, self, hidden_states, lm_head, *args, **kwargs) -> torch.Tensor:
    """Around ``LogitsProcessor._compute_lm_head``: plain float32 weights go to the kernels."""
    weight = getattr(lm_head, "weight", None)
    plain = (
        weight is not None
        and weight.dtype == hidden_states.dtype == torch.float32
        and not hasattr(lm_head, "set_lora")
        and self.rl_on_policy_target is None
        and all(value is None for value in (*args, *kwargs.values()))
    )
    if not plain:
        return original(self, hidden_states, lm_head, *args, **kwargs)
    if _largest_only and hidden_states.shape[0] <= screening.MOST_ROWS:
        head = screening.head_of(lm_head, weight)
        if head is not None:
            return head.logits(hidden_states)
    return float_linear.linear(hidden_states, weight)


def weights_change(original, self, *args, **kwargs):
    """Around what SGLang calls before any update of weights: copies of them are stale after it."""
    screening.forget()
    return original(self, *args, **kwargs)


@contextmanager
def _noted(largest_only: bool):
    global _largest_only
    before, _largest_only = _largest_only, largest_only
    try:
        yield
    finally:
        _largest_only = before


def _wants_largest_only(processor, batch) -> bool:
    """Whether nobody will read a logit but to find the largest of its row.

    Penalties, biases, grammars and logprobs move or read other logits; ranks that share a
    vocabulary exchange all of them.
    """
    info = getattr(batch, "sampling_info", None)
    return (
        info is not None
        and only_greedy(info, batch.return_logprob)
        and not batch.is_prefill_only
        and batch.spec_info is None
        and not processor.do_tensor_parallel_all_gather
        and not processor.final_logit_softcapping
        and processor.logit_scale is None
        and not info.grammars
        and info.logit_bias is None
        and info.watermark_keys is None
        and info.acc_additive_penalties is None
        and info.acc_scaling_penalties is None
        and not (info.penalizer_orchestrator and info.penalizer_orchestrator.is_required)
        and os.environ.get(SCREEN_ENV) != "0"
    )
