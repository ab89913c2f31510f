"""Rows that expert parallelism sends between ranks: counted, or expected from the routing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sglang_ascend.comm.port_load import PortLoad, check_length, from_matrix, peer_sums, product
from sglang_ascend.comm.topology import Topology
from sglang_ascend.errors import ConfigError


@dataclass(frozen=True)
class RowTraffic:
    """Rows (a token for one of its experts) between ranks.

    Attributes:
        load: rows that leave a rank and rows that reach it from others, by class of link.
        sent: rows of every rank, those for itself included.
        received: rows for every rank, those from itself included.
    """

    load: PortLoad
    sent: tuple[float, ...]
    received: tuple[float, ...]

    @property
    def handled(self) -> float:
        """Rows that the busiest rank packs or unpacks."""
        return max(*self.sent, *self.received)

    @property
    def skew(self) -> float:
        """Most rows that a rank receives over the mean; 1 where nothing is received."""
        total = sum(self.received)
        return max(self.received) * len(self.received) / total if total else 1.0


def counted(topology: Topology, rows: Sequence[Sequence[int]]) -> RowTraffic:
    """Traffic in which rank i has rows[i][j] rows for experts of rank j."""
    load = from_matrix(topology, rows)
    return RowTraffic(load, tuple(sum(row) for row in rows), tuple(sum(c) for c in zip(*rows)))


def expected(
    topology: Topology,
    token_counts: Sequence[int],
    rows_per_token: int,
    load_share: Sequence[float],
) -> RowTraffic:
    """Mean traffic when every token picks its experts alike. Linear in the number of ranks.

    Args:
        token_counts: tokens of every rank.
        rows_per_token: experts of a token.
        load_share: part of all rows that goes to each rank, summing to 1; see `skewed_share`.
    """
    check_length(topology, token_counts, "token_counts")
    check_length(topology, load_share, "load_share")
    outgoing = [float(rows_per_token * count) for count in token_counts]
    load = PortLoad(
        product(outgoing, peer_sums(topology, load_share)),
        product(load_share, peer_sums(topology, outgoing)),
    )
    total = sum(outgoing)
    return RowTraffic(load, tuple(outgoing), tuple(share * total for share in load_share))


def skewed_share(world_size: int, skew: float) -> tuple[float, ...]:
    """Share of the rows of each rank if the first receives `skew` times the mean, the others alike.

    Raises:
        ConfigError: skew outside 1 to world_size.
    """
    if not 1 <= skew <= world_size:
        raise ConfigError(
            f"routing skew (most rows of a rank over the mean) is {skew:g}; with {world_size} "
            f"rank(s) it lies from 1 to {world_size}"
        )
    if world_size == 1:
        return (1.0,)
    hot = skew / world_size
    return (hot, *((1 - hot) / (world_size - 1) for _ in range(world_size - 1)))
