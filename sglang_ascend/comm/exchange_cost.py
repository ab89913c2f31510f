"""What a MoE layer pays to bring tokens to their experts and results back, over either transport.

- "allgather": all ranks gather all tokens with their routing, compute what falls to their own
  experts, and reduce-scatter the partial sums.
- "dispatch": each token travels once for each of its experts, and each result travels back.

The experts' own arithmetic is the same for both and not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sglang_ascend.comm import cost
from sglang_ascend.comm.cost import CollectiveCost
from sglang_ascend.comm.gather_load import ALGORITHMS, Algorithm
from sglang_ascend.comm.hardware import Hardware
from sglang_ascend.comm.row_traffic import RowTraffic, expected
from sglang_ascend.comm.topology import Topology
from sglang_ascend.errors import ConfigError

Transport = Literal["allgather", "dispatch"]
TRANSPORTS: tuple[Transport, ...] = ("allgather", "dispatch")
#: An expert id and its weight, int32 and float32, that travel with a gathered token.
ROUTING_BYTES = 8


@dataclass(frozen=True)
class MoeShape:
    """Sizes of a MoE layer on the wire. The same on every rank.

    Attributes:
        hidden: elements of a token.
        top_k: experts a token.
        slots: expert slots over all ranks.
        gather_bytes: of a token in the all-gather, without its routing.
        scatter_bytes: of a token's partial sum in the reduce-scatter.
        dispatch_bytes: of a row to its expert.
        combine_bytes: of a row back from its expert.
        algorithm: of all-gather and reduce-scatter.
        shared_rows: 1 if the shared expert has ranks of its own, to which every token travels too.
    """

    hidden: int
    top_k: int
    slots: int
    gather_bytes: int
    scatter_bytes: int
    dispatch_bytes: int
    combine_bytes: int
    algorithm: Algorithm = "two_level"
    shared_rows: int = 0

    @property
    def rows_per_token(self) -> int:
        """Rows that a token is dispatched as."""
        return self.top_k + self.shared_rows

    def __post_init__(self) -> None:
        for name in ("hidden", "slots"):
            if getattr(self, name) < 1:
                raise ConfigError(f"MoE shape: {name} is {getattr(self, name)}; it is at least 1")
        if not 1 <= self.top_k <= self.slots:
            raise ConfigError(
                f"MoE shape: top_k is {self.top_k}; accepted: 1 to {self.slots} slots"
            )
        for name in ("gather_bytes", "scatter_bytes", "dispatch_bytes", "combine_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"MoE shape: {name} is {getattr(self, name)}; it is at least 1")
        if self.algorithm not in ALGORITHMS:
            raise ConfigError(
                f"MoE shape: algorithm {self.algorithm!r} is not one of {', '.join(ALGORITHMS)}"
            )


def bf16_shape(hidden: int, top_k: int, slots: int, *, int8_wire: bool = False) -> MoeShape:
    """Shape of a layer on Ascend: BF16 sums, tokens in BF16 or quantised before they travel.

    With int8_wire a gathered token carries a float32 scale, and a dispatched row 512 B with its
    scale, the padded format of arXiv 2506.12708.
    """
    token = 2 * hidden
    return MoeShape(
        hidden=hidden,
        top_k=top_k,
        slots=slots,
        gather_bytes=hidden + 4 if int8_wire else token,
        scatter_bytes=token,
        dispatch_bytes=hidden + 512 if int8_wire else token,
        combine_bytes=token,
    )


def allgather_exchange(
    topology: Topology,
    hardware: Hardware,
    token_counts: Sequence[int],
    shape: MoeShape,
    traffic: RowTraffic,
) -> CollectiveCost:
    """All-gather and reduce-scatter, with the rows that the busiest rank sorts and sums.

    Args:
        token_counts: tokens of every rank.
        traffic: rows between ranks if they were dispatched; here only each rank's share of the
            experts' work matters.
    """
    gathered = [
        count * (shape.gather_bytes + shape.top_k * ROUTING_BYTES) for count in token_counts
    ]
    scattered = [count * shape.scatter_bytes for count in token_counts]
    collectives = cost.all_gather(topology, hardware, gathered, shape.algorithm)
    collectives += cost.reduce_scatter(topology, hardware, scattered, shape.algorithm)
    sorted_bytes = max(traffic.received) * (shape.gather_bytes + shape.scatter_bytes)
    summed_bytes = sum(token_counts) * shape.scatter_bytes
    packing = (sorted_bytes + summed_bytes) / hardware.si("transport.pack_bandwidth")
    overhead = hardware.si("transport.allgather_overhead")
    return collectives + CollectiveCost(packing + overhead, {}, 0)


def dispatch_exchange(
    topology: Topology, hardware: Hardware, shape: MoeShape, traffic: RowTraffic
) -> CollectiveCost:
    """Dispatch and combine; handling the rows is part of both (`dispatch.row`)."""
    both = cost.dispatch(topology, hardware, traffic, shape.dispatch_bytes)
    both += cost.combine(topology, hardware, traffic, shape.combine_bytes)
    return both + CollectiveCost(hardware.si("transport.dispatch_overhead"), {}, 0)


def exchange(
    topology: Topology,
    hardware: Hardware,
    token_counts: Sequence[int],
    shape: MoeShape,
    load_share: Sequence[float],
) -> dict[Transport, CollectiveCost]:
    """Cost of a layer over both transports.

    Args:
        token_counts: tokens of every rank.
        load_share: part of all rows that goes to each rank; see `row_traffic.skewed_share`.
    """
    traffic = expected(topology, token_counts, shape.rows_per_token, load_share)
    return {
        "allgather": allgather_exchange(topology, hardware, token_counts, shape, traffic),
        "dispatch": dispatch_exchange(topology, hardware, shape, traffic),
    }
