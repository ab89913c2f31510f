"""What both expert-parallel transports are: tokens to their experts and the weighted sums back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch

from sglang_ascend.comm.transport import RankGroup, Where
from sglang_ascend.errors import ConfigError
from sglang_ascend.moe.dispatch.placement import ExpertPlacement

Experts = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""rows [n, hidden] sorted by local slot, tokens_per_expert [local slots] int64 -> [n, hidden].

n may be larger than the sum of tokens_per_expert; the rows behind it are not read.
"""

SharedExpert = Callable[[torch.Tensor], torch.Tensor]
"""rows [n, hidden] -> [n, hidden], of the shared expert."""


class ExpertDispatch(ABC):
    """One transport over one group of ranks; made once, run by every layer of every step."""

    def __init__(self, group: RankGroup, placement: ExpertPlacement, quantized: bool = False):
        """quantized: send activations as INT8 with a float32 scale a token (quantized_payload)."""
        if placement.world_size != group.size:
            raise ConfigError(
                f"experts are placed on {placement.world_size} ranks, the group has {group.size}"
            )
        self.group = group
        self.placement = placement
        self.quantized = quantized

    def check(self, hidden: torch.Tensor, token_counts, shared) -> None:
        """Raise ConfigError for a call that would leave the ranks in different collectives."""
        rank, size = self.group.rank, self.group.size
        if len(token_counts) != size or token_counts[rank] != len(hidden):
            raise ConfigError(
                f"rank {rank} of {size} has {len(hidden)} tokens, token_counts say"
                f" {list(token_counts)}; they must be the same list on all ranks"
            )
        if shared is None and self.placement.is_shared(rank):
            raise ConfigError(f"rank {rank} is for the shared expert; run() was given none")
        if shared is not None and not self.placement.shared_ranks:
            raise ConfigError(
                "run() was given a shared expert, and no rank is for it; add its output yourself,"
                " or place it with shared_ranks"
            )

    @abstractmethod
    def run(
        self,
        hidden: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        token_counts: Sequence[int],
        experts: Experts,
        where: Where,
        shared: SharedExpert | None = None,
    ) -> torch.Tensor:
        """Send this rank's tokens through their experts; all ranks call it together.

        Args:
            hidden: [T, hidden], T = token_counts[rank], which may be 0.
            ids: expert slots [T, k] int32, distinct within a token; -1 chooses no expert.
            weights: [T, k] float32; the weight of an id of -1 is not read.
            token_counts: tokens of every rank, the same on all ranks.
            experts: applied to this rank's routed slots; not called on a rank of the shared expert.
            where: step and layer, for errors.
            shared: with ranks for the shared expert, that expert; its output is added unweighted.

        Returns:
            [T, hidden] in the dtype of hidden.

        Raises:
            CollectiveError: if the other ranks do not take part in time.
        """
