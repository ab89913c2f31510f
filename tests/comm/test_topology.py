"""Ranks in node-major order, and the link between any two of them."""

from __future__ import annotations

import pytest

from sglang_ascend.comm.topology import LinkClass, Topology
from sglang_ascend.errors import ConfigError


def test_links_of_two_nodes_of_two_cards_of_two_dies():
    topology = Topology(nodes=2, cards_per_node=2, dies_per_card=2)
    assert topology.world_size == 8 and topology.ranks_per_node == 4
    assert [topology.link(0, peer) for peer in range(8)] == [
        LinkClass.LOCAL,
        LinkClass.SAME_CARD,
        *[LinkClass.INTRA_NODE] * 2,
        *[LinkClass.INTER_NODE] * 4,
    ]
    assert [topology.node_of(rank) for rank in range(8)] == [0] * 4 + [1] * 4


@pytest.mark.parametrize("topology", [Topology(3, 1), Topology(2, 3), Topology(2, 2, 2)], ids=str)
def test_a_link_is_the_same_in_both_directions_and_every_rank_sees_as_many(topology):
    ranks = range(topology.world_size)
    seen = [sorted(topology.link(rank, peer) for peer in ranks) for rank in ranks]
    assert all(links == seen[0] for links in seen)
    assert all(topology.link(a, b) == topology.link(b, a) for a in ranks for b in ranks)


@pytest.mark.parametrize("name", ["nodes", "cards_per_node", "dies_per_card"])
def test_an_empty_level_is_refused(name):
    sizes = {"nodes": 2, "cards_per_node": 2, "dies_per_card": 2, name: 0}
    with pytest.raises(ConfigError, match=f"{name} must be at least 1, got 0"):
        Topology(**sizes)
