"""All-gather by three algorithms: what passes each port, for how long, in how many messages.

A reduce-scatter is the same exchange backwards and takes as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from sglang_ascend.comm.hardware import Hardware
from sglang_ascend.comm.port_load import WIRES, PortLoad, peer_sums, product
from sglang_ascend.comm.topology import LinkClass, Topology

Algorithm = Literal["ring", "one_level", "two_level"]


class Gathering(NamedTuple):
    """Bytes on the ports, seconds on the wire, and messages between nodes that a rank starts.

    Messages within a node are not counted: HCCS and UB move data without a task for each message.
    `fill_s` is the part of the seconds in which a pipeline fills or runs empty: what follows in the
    same pipeline hides it.
    """

    load: PortLoad
    seconds: float
    posts: int
    fill_s: float = 0.0


def ring(topology: Topology, hardware: Hardware, sizes: Sequence[float]) -> Gathering:
    """Every rank passes what it has to the next rank, world - 1 times, as gloo does."""
    world, total = topology.world_size, sum(sizes)
    load = PortLoad(
        {wire: [0.0] * world for wire in WIRES}, {wire: [0.0] * world for wire in WIRES}
    )
    slowest = 0.0
    for rank in range(world):
        after = (rank + 1) % world
        wire = topology.link(rank, after)
        load.sent[wire][rank] = load.received[wire][after] = total - sizes[after]
        slowest = max(slowest, hardware.link(wire).latency_s)
    steps = world - 1
    # The load counts the latency of one step.
    seconds = load.seconds(hardware) + (steps - 1) * slowest
    return Gathering(load, seconds, steps if topology.nodes > 1 else 0)


def one_level(topology: Topology, hardware: Hardware, sizes: Sequence[float]) -> Gathering:
    """Every rank sends its piece to every other rank at once, over whatever link joins the two."""
    peers = peer_sums(topology, [1.0] * topology.world_size)
    load = PortLoad(product(sizes, peers), peer_sums(topology, sizes))
    posts = topology.world_size - topology.ranks_per_node
    return Gathering(load, load.seconds(hardware), posts)


def two_level(topology: Topology, hardware: Hardware, sizes: Sequence[float]) -> Gathering:
    """Ranks of equal place exchange pieces between nodes; each node then shares what arrived.

    The stages form a pipeline with a piece for every node: all but the first (or last) piece of the
    shorter stage is hidden, unless both go through one port.
    """
    nodes, per_node = topology.nodes, topology.ranks_per_node
    columns = [sum(sizes[place::per_node]) for place in range(per_node)] * nodes
    peers = peer_sums(topology, [1.0] * topology.world_size)
    nothing = [0.0] * topology.world_size
    between = PortLoad(
        {**dict.fromkeys(WIRES, nothing), LinkClass.INTER_NODE: [(nodes - 1) * s for s in sizes]},
        {
            **dict.fromkeys(WIRES, nothing),
            LinkClass.INTER_NODE: [column - size for column, size in zip(columns, sizes)],
        },
    )
    within = PortLoad(
        {**product(columns, peers), LinkClass.INTER_NODE: nothing},
        {**peer_sums(topology, columns), LinkClass.INTER_NODE: nothing},
    )
    longer, shorter = sorted((between.seconds(hardware), within.seconds(hardware)), reverse=True)
    if hardware.si("link.shared_port"):
        return Gathering(between + within, longer + shorter, nodes - 1)
    fill = shorter / nodes
    return Gathering(between + within, longer + fill, nodes - 1, fill)


ALGORITHMS: dict[Algorithm, Callable[[Topology, Hardware, Sequence[float]], Gathering]] = {
    "ring": ring,
    "one_level": one_level,
    "two_level": two_level,
}
