"""Where the ranks of a group live, and which kind of link joins two of them.

Pure: the same value on every rank, so that choices made from it agree everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sglang_ascend.errors import ConfigError


class LinkClass(StrEnum):
    """Kinds of link, cheapest first."""

    LOCAL = "local"  # a rank to itself: a copy in its own memory
    SAME_CARD = "same_card"  # the two dies of one 910C package
    INTRA_NODE = "intra_node"  # HCCS, or the UB plane within a node
    INTER_NODE = "inter_node"  # RoCE, or the UB plane between nodes


@dataclass(frozen=True)
class Topology:
    """Ranks in node-major order: rank = (node * cards_per_node + card) * dies_per_card + die.

    Attributes:
        nodes: machines (or network namespaces that stand for them).
        cards_per_node: packages in a machine.
        dies_per_card: ranks in a package: 1 on 910B, 2 on 910C; 1 on the reference device.
    """

    nodes: int
    cards_per_node: int
    dies_per_card: int = 1

    def __post_init__(self) -> None:
        for name in ("nodes", "cards_per_node", "dies_per_card"):
            value = getattr(self, name)
            if value < 1:
                raise ConfigError(f"topology: {name} must be at least 1, got {value}")

    @property
    def ranks_per_node(self) -> int:
        return self.cards_per_node * self.dies_per_card

    @property
    def world_size(self) -> int:
        return self.nodes * self.ranks_per_node

    def node_of(self, rank: int) -> int:
        return rank // self.ranks_per_node

    def link(self, source: int, target: int) -> LinkClass:
        """The link that bytes from rank `source` to rank `target` cross."""
        if source == target:
            return LinkClass.LOCAL
        if source // self.dies_per_card == target // self.dies_per_card:
            return LinkClass.SAME_CARD
        if self.node_of(source) == self.node_of(target):
            return LinkClass.INTRA_NODE
        return LinkClass.INTER_NODE
