"""Which rank holds which expert slots."""

from __future__ import annotations

from dataclasses import dataclass

from sglang_ascend.errors import ConfigError


@dataclass(frozen=True)
class ExpertPlacement:
    """Consecutive expert slots on consecutive ranks, behind the ranks of the shared expert.

    Source of the order: torch_npu's npu_moe_distribute_dispatch_v2 with expert_shard_type 0.

    Attributes:
        world_size: ranks of the expert-parallel group.
        slots: routed expert slots (experts and their redundant copies) of a layer.
        shared_ranks: the first ranks, each with a copy of the shared expert and no routed slots.
    """

    world_size: int
    slots: int
    shared_ranks: int = 0

    def __post_init__(self) -> None:
        if self.world_size < 1 or self.slots < 1:
            raise ConfigError(
                f"expert placement: world_size {self.world_size} and slots {self.slots} must be at"
                " least 1"
            )
        if not 0 <= self.shared_ranks < self.world_size:
            raise ConfigError(
                f"expert placement: {self.shared_ranks} ranks for the shared expert of"
                f" {self.world_size} ranks leave none for the routed ones; give at most"
                f" {self.world_size - 1}"
            )
        if self.slots % self.routed_ranks:
            raise ConfigError(
                f"expert placement: {self.slots} slots do not divide over {self.routed_ranks}"
                f" ranks ({self.world_size} less {self.shared_ranks} for the shared expert);"
                f" {-self.slots % self.routed_ranks} redundant slots more would"
            )

    @property
    def routed_ranks(self) -> int:
        return self.world_size - self.shared_ranks

    @property
    def slots_per_rank(self) -> int:
        return self.slots // self.routed_ranks

    def is_shared(self, rank: int) -> bool:
        return rank < self.shared_ranks

    def slot_range(self, rank: int) -> tuple[int, int]:
        """First slot of the rank and the one behind its last; empty on a shared rank."""
        start = max(rank - self.shared_ranks, 0) * self.slots_per_rank
        return start, start + (0 if self.is_shared(rank) else self.slots_per_rank)

    def shared_rank_of(self, source: int) -> int:
        """The rank that applies the shared expert to the tokens of rank `source`."""
        return source % self.shared_ranks
