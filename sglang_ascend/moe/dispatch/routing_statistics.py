"""How unevenly the router loads the ranks, as every rank of the group knows it.

Counts are summed over all ranks before they enter, so the statistics are equal everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from sglang_ascend.comm.exchange_cost import MoeShape
from sglang_ascend.comm.row_traffic import skewed_share
from sglang_ascend.comm.transport import RankGroup, Where
from sglang_ascend.errors import ConfigError
from sglang_ascend.moe.dispatch.placement import ExpertPlacement


@dataclass(frozen=True, eq=False)
class RoutingStatistics:
    """Moving average of the load of every expert slot.

    Attributes:
        placement: which rank holds which slots.
        load: [layers][slots], each slot's part of its layer's rows; no layers before the first
            update, which means a balanced router.
    """

    placement: ExpertPlacement
    load: tuple[tuple[float, ...], ...] = ()

    @cached_property
    def skew(self) -> float:
        """Rows of the fullest of the routed ranks over their mean, averaged over the layers."""
        if not self.load:
            return 1.0
        ranks = range(self.placement.shared_ranks, self.placement.world_size)
        bounds = [self.placement.slot_range(rank) for rank in ranks]
        fullest = [max(sum(layer[start:end]) for start, end in bounds) for layer in self.load]
        return max(1.0, sum(fullest) / len(fullest) * len(bounds))

    def updated(self, counts: Sequence[Sequence[int]], keep: float = 0.8) -> RoutingStatistics:
        """With one more observation.

        Args:
            counts: [layers][slots] rows over all ranks; a layer without rows keeps its load.
            keep: weight of what was known before.

        Raises:
            ConfigError: counts of another number of layers or slots.
        """
        slots = self.placement.slots
        layers = len(self.load) or len(counts)
        if len(counts) != layers or any(len(layer) != slots for layer in counts):
            raise ConfigError(
                f"routing counts are {len(counts)} layers of {[len(c) for c in counts][:1]} slots; "
                f"expected {layers} layers of {slots}"
            )
        before = self.load or (None,) * layers
        return RoutingStatistics(
            self.placement,
            tuple(_averaged(old, layer, keep) for old, layer in zip(before, counts)),
        )


def rank_shares(placement: ExpertPlacement, shape: MoeShape, skew: float) -> tuple[float, ...]:
    """Part of all rows that goes to each rank, summing to 1.

    Args:
        skew: most rows of a routed rank over their mean; here the first one gets them.
    """
    routed = skewed_share(placement.routed_ranks, skew)
    if not placement.shared_ranks:
        return routed
    apart = shape.shared_rows / shape.rows_per_token
    each = apart / placement.shared_ranks
    return (each,) * placement.shared_ranks + tuple(part * (1 - apart) for part in routed)


def _averaged(
    old: tuple[float, ...] | None, counts: Sequence[int], keep: float
) -> tuple[float, ...]:
    total = sum(counts)
    if not total:
        return old or (1 / len(counts),) * len(counts)
    if old is None:
        return tuple(count / total for count in counts)
    return tuple(keep * part + (1 - keep) * count / total for part, count in zip(old, counts))


class RoutingMonitor:
    """Counts this rank's choices and shares them with the others every so many steps.

    All ranks call `end_step` once a step; one small all-gather every `every` steps keeps
    `statistics` equal on all of them.
    """

    def __init__(
        self,
        group: RankGroup,
        placement: ExpertPlacement,
        layers: int,
        every: int = 32,
        device: torch.device | str = "cpu",
    ) -> None:
        if every < 1:
            raise ConfigError(f"routing counts are shared every {every} steps; give at least 1")
        self.statistics = RoutingStatistics(placement)
        self._group, self._every, self._steps = group, every, 0
        self._counts = torch.zeros(layers, placement.slots, dtype=torch.int64, device=device)

    def add(self, layer: int, ids: torch.Tensor) -> None:
        """Count a layer's choices.

        Args:
            ids: [T, k] int32 expert slots on the monitor's device; -1 chooses none.
        """
        # Bin 0 takes the ids of -1.
        seen = torch.bincount(ids.flatten() + 1, minlength=self._counts.shape[1] + 1)
        self._counts[layer] += seen[1:]

    def end_step(self, where: Where) -> bool:
        """One step is over on this rank; True if the statistics are new."""
        self._steps += 1
        if self._steps % self._every:
            return False
        size = self._group.size
        rows = self._group.all_gather_rows(self._counts.view(1, -1), [1] * size, where)
        self.statistics = self.statistics.updated(rows.sum(0).view_as(self._counts).tolist())
        self._counts.zero_()
        return True
