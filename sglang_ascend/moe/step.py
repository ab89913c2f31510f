"""Token counts of the forward step under way, as every rank of the group knows them.

SGLang synchronises the counts of the DP-attention groups before each step; how a group's tokens are
spread over its attention-TP ranks follows from the count alone. So the tuple here is the same on
all ranks, and a choice made from it is too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One forward pass of the model.

    Attributes:
        number: forward passes of this process so far; equal on all ranks of a lockstep group.
        token_counts: real tokens of each expert-parallel rank, without padding.
    """

    number: int
    token_counts: tuple[int, ...]


def rank_token_counts(
    real: Sequence[int], padded: Sequence[int], attention_tp: int
) -> tuple[int, ...]:
    """Tokens of each rank: a DP group's rows lie in equal chunks on its attention-TP ranks.

    Args:
        real: tokens of each attention group.
        padded: rows of each group's batch, a multiple of ``attention_tp``; padding comes last.
        attention_tp: ranks of a group.
    """
    counts = []
    for tokens, rows in zip(real, padded, strict=True):
        if rows % attention_tp or not 0 <= tokens <= rows:
            raise ValueError(
                f"{tokens} tokens in {rows} rows cannot lie in equal chunks on {attention_tp} ranks"
            )
        chunk = rows // attention_tp
        counts += [min(max(tokens - chunk * rank, 0), chunk) for rank in range(attention_tp)]
    return tuple(counts)


_current: Step | None = None


def current() -> Step:
    """The step under way in this process."""
    if _current is None:
        raise RuntimeError("no forward step has been recorded; is the seam step-token-counts in?")
    return _current


def record(original, runner, forward_batch) -> None:
    """Around ``ModelRunner._prepare_eager_forward_batch``: note the step once it is padded."""
    from sglang.srt.layers.moe.utils import get_moe_a2a_backend
    from sglang.srt.runtime_context import get_parallel

    global _current
    # Padding replaces the list, so the reference taken before keeps the real counts.
    real = forward_batch.global_num_tokens_cpu
    original(runner, forward_batch)
    if get_moe_a2a_backend().is_ascend_fuseep():
        rows = forward_batch.global_num_tokens_cpu
        attention_tp = get_parallel().attn_tp_size
        _current = Step(runner.forward_pass_id, rank_token_counts(real, rows, attention_tp))


def needs_all_counts(original, *args, **kwargs) -> bool:
    """Around ``require_mlp_tp_gather``: whether a batch must carry the counts of all groups."""
    from sglang.srt.layers.moe.utils import get_moe_a2a_backend
    from sglang.srt.runtime_context import get_parallel

    ours = get_moe_a2a_backend().is_ascend_fuseep() and get_parallel().attn_dp_enabled
    return ours or original(*args, **kwargs)
