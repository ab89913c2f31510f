"""Which of the two transports carries a step's tokens to their experts.

`choose` is pure, and all that it reads is the same on every rank: ranks that chose differently
would wait for each other in different collectives until the timeout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import NormalDist

from sglang_ascend.comm.exchange_cost import MoeShape, Transport, exchange
from sglang_ascend.comm.hardware import Hardware
from sglang_ascend.comm.topology import Topology
from sglang_ascend.errors import ConfigError
from sglang_ascend.moe.dispatch.placement import ExpertPlacement
from sglang_ascend.moe.dispatch.routing_statistics import RoutingStatistics, rank_shares

#: A transport gives way to the other only for at least this gain, so that noise does not flip it.
SWITCH_GAIN = 0.05


@dataclass(frozen=True)
class StepView:
    """What the choice may depend on. Every field has the same value on all ranks.

    Attributes:
        token_counts: tokens of every rank in this step.
        topology: where the ranks live.
        shape: sizes of a MoE layer.
        routing: load of the experts so far.
        hardware: constants, best from `calibration`, which makes them equal on all ranks.
        dispatch_capacity: most tokens of a rank that Dispatch/Combine has room for, or None for
            no bound; 0 where it cannot be used at all.
    """

    token_counts: tuple[int, ...]
    topology: Topology
    shape: MoeShape
    routing: RoutingStatistics
    hardware: Hardware
    dispatch_capacity: int | None = None

    def __post_init__(self) -> None:
        if len(self.token_counts) != self.topology.world_size or min(self.token_counts) < 0:
            raise ConfigError(
                f"token counts {self.token_counts}: expected {self.topology.world_size} numbers "
                f"from 0, one for every rank of {self.topology}"
            )
        placement, shape = self.routing.placement, self.shape
        given = (placement.world_size, placement.slots, bool(placement.shared_ranks))
        declared = (self.topology.world_size, shape.slots, bool(shape.shared_rows))
        if given != declared:
            raise ConfigError(
                f"experts are placed for (ranks, slots, shared expert apart) {given}, topology and "
                f"shape say {declared}; make them agree"
            )


@dataclass(frozen=True)
class ChooserState:
    """What is remembered from the choices before; equal on all ranks since the choices are."""

    transport: Transport | None = None


@dataclass(frozen=True)
class Choice:
    """The transport of a step, and why.

    Attributes:
        transport: what to use.
        predicted_s: of a MoE layer's exchange, by transport.
        reason: one line with the numbers that decided.
        state: for the next call.
    """

    transport: Transport
    predicted_s: dict[Transport, float]
    reason: str
    state: ChooserState = field(repr=False)


def choose(view: StepView, state: ChooserState) -> Choice:
    """The transport with the shorter predicted time; the one in use unless the gain is worth it.

    More tokens on a rank than Dispatch/Combine has room for leave AllGather/ReduceScatter, and do
    not count as a choice that later steps stick to.
    """
    predicted = _predicted(view)
    most = max(view.token_counts)
    if view.dispatch_capacity is not None and most > view.dispatch_capacity:
        rank = view.token_counts.index(most)
        reason = (
            f"allgather: {most} tokens on rank {rank} are more than the {view.dispatch_capacity} a "
            "rank that dispatch has room for"
        )
        return Choice("allgather", predicted, reason, state)
    faster, slower = sorted(predicted, key=lambda transport: predicted[transport])
    gain = 1 - predicted[faster] / predicted[slower] if predicted[slower] else 0.0
    numbers = (
        f"{faster} {predicted[faster] * 1e6:.0f} us, {slower} {predicted[slower] * 1e6:.0f} us "
        f"predicted a layer ({sum(view.token_counts)} tokens on {view.topology.world_size} ranks, "
        f"at most {most}; routing skew {view.routing.skew:.2f})"
    )
    if state.transport == slower and gain < SWITCH_GAIN:
        reason = f"{slower} kept, gain of {gain:.1%} is under {SWITCH_GAIN:.0%}: {numbers}"
        return Choice(slower, predicted, reason, state)
    return Choice(faster, predicted, f"{faster}: {numbers}", ChooserState(faster))


def _predicted(view: StepView) -> dict[Transport, float]:
    routing = view.routing
    return dict(
        _prediction(
            view.token_counts,
            view.topology,
            view.hardware,
            view.shape,
            routing.placement,
            routing.skew,
        )
    )


@lru_cache(maxsize=1024)
def _prediction(
    token_counts: tuple[int, ...],
    topology: Topology,
    hardware: Hardware,
    shape: MoeShape,
    placement: ExpertPlacement,
    skew: float,
) -> tuple[tuple[Transport, float], ...]:
    """Steps in a row often have equal counts."""
    mean_rows = sum(token_counts) * shape.rows_per_token / topology.world_size
    share = rank_shares(placement, shape, _with_chance(skew, placement.routed_ranks, mean_rows))
    costs = exchange(topology, hardware, token_counts, shape, share)
    return tuple((transport, cost.seconds) for transport, cost in costs.items())


def _with_chance(skew: float, ranks: int, mean_rows: float) -> float:
    """Skew of a single step: few rows are uneven by chance even under a balanced router.

    Rows of a rank vary by about the square root of their mean; the fullest of `ranks` lies above
    by Blom's approximation of the greatest of so many normal deviates.
    """
    if ranks == 1 or not mean_rows:
        return min(skew, ranks)
    # Rounded, so that libraries of different last digits agree.
    deviates = round(NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25)), 3)
    return min(max(skew, 1 + deviates / math.sqrt(mean_rows)), ranks)
