"""The collectives of `cost` where all ranks bring the same, in time that does not grow with ranks.

Equal ranks load their ports equally, so that one rank (with a hot receiver: one of each distance
from it) stands for all. Same figures as `cost` on full lists, which a test holds.
"""

from __future__ import annotations

from collections.abc import Mapping

from sglang_ascend.comm.cost import NOTHING, CollectiveCost
from sglang_ascend.comm.gather_load import Algorithm, one_level, ring
from sglang_ascend.comm.hardware import Hardware
from sglang_ascend.comm.port_load import WIRES, PortLoad
from sglang_ascend.comm.topology import LinkClass, Topology


def peers(topology: Topology) -> dict[LinkClass, int]:
    """How many other ranks a rank reaches over each class of link."""
    dies, per_node, world = topology.dies_per_card, topology.ranks_per_node, topology.world_size
    return {
        LinkClass.SAME_CARD: dies - 1,
        LinkClass.INTRA_NODE: per_node - dies,
        LinkClass.INTER_NODE: world - per_node,
    }


def all_gather(
    topology: Topology, hardware: Hardware, nbytes: float, algorithm: Algorithm = "two_level"
) -> CollectiveCost:
    """Every rank brings ``nbytes`` and gets those of all ranks.

    A reduce-scatter to pieces of ``nbytes`` costs the same.
    """
    return _gathered(topology, hardware, nbytes, algorithm)[0]


def _gathered(
    topology: Topology, hardware: Hardware, nbytes: float, algorithm: Algorithm
) -> tuple[CollectiveCost, float]:
    """The cost, and the part of it in which the pipeline fills."""
    world, nodes = topology.world_size, topology.nodes
    if world == 1:
        return NOTHING, 0.0
    if algorithm != "two_level":
        full = {"ring": ring, "one_level": one_level}[algorithm]
        found = full(topology, hardware, [nbytes] * world)
        load = found.load.totals()
        return _cost(topology, hardware, load, found.seconds, found.posts), found.fill_s
    count = peers(topology)
    piece = {wire: nbytes * nodes * count[wire] for wire in WIRES}
    within = {**piece, LinkClass.INTER_NODE: 0.0}
    between = {**dict.fromkeys(WIRES, 0.0), LinkClass.INTER_NODE: nbytes * (nodes - 1)}
    longer, shorter = sorted(
        (_equal(between).seconds(hardware), _equal(within).seconds(hardware)), reverse=True
    )
    load = {wire: round(world * (within[wire] + between[wire])) for wire in WIRES}
    if hardware.si("link.shared_port"):
        return _cost(topology, hardware, load, longer + shorter, nodes - 1), 0.0
    fill = shorter / nodes
    return _cost(topology, hardware, load, longer + fill, nodes - 1), fill


def all_reduce(
    topology: Topology, hardware: Hardware, nbytes: float, algorithm: Algorithm = "two_level"
) -> CollectiveCost:
    """Every rank brings ``nbytes`` and gets the sum over all ranks."""
    if topology.world_size == 1:
        return NOTHING
    half, fill = _gathered(topology, hardware, nbytes / topology.world_size, algorithm)
    both = half + half
    seconds = both.seconds - hardware.si("collective.fixed") - fill
    return CollectiveCost(seconds, both.bytes_by_link, both.posts)


def all_to_all(topology: Topology, hardware: Hardware, nbytes: float) -> CollectiveCost:
    """Every rank sends ``nbytes`` to every other rank."""
    if topology.world_size == 1:
        return NOTHING
    sent = {wire: nbytes * count for wire, count in peers(topology).items()}
    load = {wire: round(topology.world_size * sent[wire]) for wire in WIRES}
    seconds = _equal(sent).seconds(hardware)
    return _cost(topology, hardware, load, seconds, topology.world_size - 1)


def dispatch(
    topology: Topology,
    hardware: Hardware,
    tokens: float,
    top_k: int,
    skew: float,
    row_bytes: float,
) -> CollectiveCost:
    """Rows of ``tokens`` a rank to their experts, where one rank gets ``skew`` times the mean.

    Combine, the same the other way round, costs as much for rows of equal size.
    """
    world = topology.world_size
    if world == 1:
        return NOTHING
    hot = min(skew, world) / world
    cold = (1 - hot) / (world - 1)
    rows, count = tokens * top_k, peers(topology)
    # Ranks seen from the hot one: itself, and one over each class of link.
    sent: dict[LinkClass, list[float]] = {}
    received: dict[LinkClass, list[float]] = {}
    for wire in WIRES:
        to_hot = [(hot - cold) * (seen is wire and count[wire] > 0) for seen in WIRES]
        sent[wire] = [rows * (cold * count[wire] + extra) for extra in (0.0, *to_hot)]
        received[wire] = [rows * count[wire] * hot] + [rows * count[wire] * cold] * len(WIRES)
    load = PortLoad(sent, received)
    load = load.scaled(row_bytes)
    handled = max(rows, rows * world * max(hot, cold)) * hardware.si("dispatch.row")
    longer, shorter = sorted((load.seconds(hardware), handled), reverse=True)
    seconds = longer + shorter * (1 - hardware.si("dispatch.overlap"))
    totals = {}
    for wire in WIRES:
        share = count[wire] * (hot + (world - 1) * cold)
        totals[wire] = round(rows * share * row_bytes)
    return _cost(topology, hardware, totals, seconds, world - 1)


def _equal(sent: Mapping[LinkClass, float]) -> PortLoad:
    """Ports of a rank that receives as much as it sends."""
    own = {wire: [amount] for wire, amount in sent.items()}
    return PortLoad(own, own)


def _cost(
    topology: Topology,
    hardware: Hardware,
    load: Mapping[LinkClass, int],
    seconds: float,
    posts: int,
) -> CollectiveCost:
    start = hardware.si("collective.fixed") + posts * hardware.si("collective.post")
    return CollectiveCost(start + seconds, {w: n for w, n in load.items() if n}, posts)
