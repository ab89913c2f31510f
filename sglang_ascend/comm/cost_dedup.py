"""Dispatch and combine that send a token to a node once and spread it there."""

from __future__ import annotations

from sglang_ascend.comm.cost import NOTHING, CollectiveCost
from sglang_ascend.comm.hardware import Hardware
from sglang_ascend.comm.topology import LinkClass, Topology


def nodes_reached(nodes: int, top_k: int, node_limit: int | None = None) -> float:
    """Expected number of nodes, a token's own included, that hold one of its experts.

    Args:
        top_k: experts a token, each on any node with equal chance.
        node_limit: nodes that routing allows a token, for instance 4 of 8 groups.
    """
    allowed = min(nodes, node_limit or nodes)
    return allowed * (1 - (1 - 1 / allowed) ** top_k)


def exchange(
    topology: Topology,
    hardware: Hardware,
    tokens: float,
    top_k: int,
    row_bytes: float,
    skew: float = 1.0,
    node_limit: int | None = None,
) -> CollectiveCost:
    """One direction of the exchange, with equal tokens on all ranks.

    A token crosses to each other node that it reaches once, rank to rank of equal place; there it
    goes to the ranks of its experts. The two stages form a pipeline of small pieces.

    Args:
        tokens: of every rank.
        row_bytes: of a token on the wire.
        skew: rows of the busiest receiving rank over the mean.
    """
    world, per_node = topology.world_size, topology.ranks_per_node
    if world == 1:
        return NOTHING
    reached = nodes_reached(topology.nodes, top_k, node_limit)
    crossing = tokens * reached * (1 - 1 / topology.nodes)
    spread = tokens * top_k * (1 - 1 / per_node)
    inter = hardware.link(LinkClass.INTER_NODE)
    intra = hardware.link(LinkClass.INTRA_NODE)
    between = crossing * row_bytes / inter.bytes_per_s
    within = spread * row_bytes * skew / intra.bytes_per_s
    shared_port = bool(hardware.si("link.shared_port"))
    seconds = between + within if shared_port else max(between, within)
    latency = intra.latency_s + (inter.latency_s if topology.nodes > 1 else 0.0)
    posts = topology.nodes - 1
    start = hardware.si("collective.fixed") + posts * hardware.si("collective.post")
    load = {
        LinkClass.INTRA_NODE: round(world * spread * row_bytes),
        LinkClass.INTER_NODE: round(world * crossing * row_bytes),
    }
    return CollectiveCost(start + latency + seconds, {k: v for k, v in load.items() if v}, posts)
