"""Bytes and time of collectives on a topology. The only such formulas in the project.

A collective is done when the busiest port of any rank is (`port_load`), plus latency, what starting
its messages costs, and a fixed part. Figures for Ascend are predictions from the constants of
`configs/hardware`. Pure and deterministic: equal arguments give bit-identical results everywhere.

All-gather and reduce-scatter go by one of three algorithms, see `gather_load`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sglang_ascend.comm.gather_load import ALGORITHMS, Algorithm
from sglang_ascend.comm.hardware import Hardware
from sglang_ascend.comm.port_load import WIRES, PortLoad, check_length, from_matrix
from sglang_ascend.comm.row_traffic import RowTraffic
from sglang_ascend.comm.topology import LinkClass, Topology
from sglang_ascend.errors import ConfigError


@dataclass(frozen=True)
class CollectiveCost:
    """What one collective, or several in a row, cost.

    Attributes:
        seconds: from the call to the end on the last rank.
        bytes_by_link: over all ranks, by class of link; what stays within a rank is not counted.
        posts: messages that the busiest rank has to start one by one.
    """

    seconds: float
    bytes_by_link: dict[LinkClass, int]
    posts: int

    def __add__(self, other: CollectiveCost) -> CollectiveCost:
        """One after the other."""
        links = [wire for wire in WIRES if self.bytes(wire) or other.bytes(wire)]
        return CollectiveCost(
            self.seconds + other.seconds,
            {wire: self.bytes(wire) + other.bytes(wire) for wire in links},
            self.posts + other.posts,
        )

    def bytes(self, wire: LinkClass) -> int:
        """Bytes over links of one class, summed over all ranks."""
        return self.bytes_by_link.get(wire, 0)


NOTHING = CollectiveCost(0.0, {}, 0)


def all_gather(
    topology: Topology,
    hardware: Hardware,
    bytes_by_rank: Sequence[float],
    algorithm: Algorithm = "two_level",
) -> CollectiveCost:
    """Every rank gets the pieces of all ranks.

    Args:
        bytes_by_rank: size of each rank's own piece.

    Raises:
        ConfigError: not one size for every rank, or an unknown algorithm.
    """
    check_length(topology, bytes_by_rank, "bytes_by_rank")
    if algorithm not in ALGORITHMS:
        raise ConfigError(f"algorithm {algorithm!r} is not one of {', '.join(ALGORITHMS)}")
    if topology.world_size == 1:
        return NOTHING
    gathering = ALGORITHMS[algorithm](topology, hardware, [float(size) for size in bytes_by_rank])
    return _cost(topology, hardware, gathering.load, gathering.seconds, gathering.posts)


def reduce_scatter(
    topology: Topology,
    hardware: Hardware,
    bytes_by_rank: Sequence[float],
    algorithm: Algorithm = "two_level",
) -> CollectiveCost:
    """Every rank ends with its own piece, summed over all ranks: an all-gather run backwards.

    Args:
        bytes_by_rank: size of the piece that each rank ends with.
    """
    return all_gather(topology, hardware, bytes_by_rank, algorithm)


def all_reduce(
    topology: Topology, hardware: Hardware, nbytes: float, algorithm: Algorithm = "two_level"
) -> CollectiveCost:
    """Reduce-scatter and all-gather of equal pieces, started as one collective and one pipeline.

    Args:
        nbytes: size of the tensor that every rank brings and gets.
    """
    if topology.world_size == 1:
        return NOTHING
    pieces = [nbytes / topology.world_size] * topology.world_size
    both = reduce_scatter(topology, hardware, pieces, algorithm) + all_gather(
        topology, hardware, pieces, algorithm
    )
    fill = ALGORITHMS[algorithm](topology, hardware, pieces).fill_s
    return replace(both, seconds=both.seconds - hardware.si("collective.fixed") - fill)


def all_to_all(
    topology: Topology, hardware: Hardware, traffic: Sequence[Sequence[float]]
) -> CollectiveCost:
    """Rank i sends traffic[i][j] bytes to rank j, one message a pair of ranks."""
    load = from_matrix(topology, traffic)
    return _cost(topology, hardware, load, load.seconds(hardware), topology.world_size - 1)


def dispatch(
    topology: Topology, hardware: Hardware, traffic: RowTraffic, row_bytes: float
) -> CollectiveCost:
    """Tokens to the ranks of their experts: a row for each token and expert, a post for each peer.

    Each rank handles its rows one by one (`dispatch.row`); how far that overlaps with the wire is
    `dispatch.overlap`: not at all on A2, where windows are packed before they are posted, and fully
    on A3, where cores write remote memory row by row.

    Args:
        traffic: rows between ranks.
        row_bytes: of a row on the wire, for instance 7168 + 512 for INT8 with its scale.
    """
    load = traffic.load.scaled(row_bytes)
    longer, shorter = sorted(
        (load.seconds(hardware), traffic.handled * hardware.si("dispatch.row")), reverse=True
    )
    seconds = longer + shorter * (1 - hardware.si("dispatch.overlap"))
    return _cost(topology, hardware, load, seconds, topology.world_size - 1)


def combine(
    topology: Topology, hardware: Hardware, traffic: RowTraffic, row_bytes: float
) -> CollectiveCost:
    """Rows back from their experts: dispatch the other way round, through the same ports.

    Args:
        traffic: rows between ranks as they were dispatched.
        row_bytes: of a row on the way back, for instance 2 x 7168 for BF16.
    """
    return dispatch(topology, hardware, traffic, row_bytes)


def _cost(
    topology: Topology, hardware: Hardware, load: PortLoad, seconds: float, posts: int
) -> CollectiveCost:
    """Add the fixed part and what starting the messages costs, unless there is but one rank."""
    if topology.world_size == 1:
        return NOTHING
    start = hardware.si("collective.fixed") + posts * hardware.si("collective.post")
    return CollectiveCost(start + seconds, load.totals(), posts)
