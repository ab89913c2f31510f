"""How many bytes pass each rank's ports in an exchange, and how long the busiest port takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sglang_ascend.comm.hardware import Hardware
from sglang_ascend.comm.topology import LinkClass, Topology
from sglang_ascend.errors import ConfigError

#: Classes of link that take wire time; a copy within a rank does not.
WIRES = (LinkClass.SAME_CARD, LinkClass.INTRA_NODE, LinkClass.INTER_NODE)
ByRank = Mapping[LinkClass, Sequence[float]]


@dataclass(frozen=True)
class PortLoad:
    """Bytes (or rows) that each rank sends and receives, by class of link: [class][rank]."""

    sent: ByRank
    received: ByRank

    def __add__(self, other: PortLoad) -> PortLoad:
        return PortLoad(_added(self.sent, other.sent), _added(self.received, other.received))

    def scaled(self, factor: float) -> PortLoad:
        """Every amount times `factor`, for instance the bytes of a row."""
        return PortLoad(_scaled(self.sent, factor), _scaled(self.received, factor))

    def totals(self) -> dict[LinkClass, int]:
        """Amount over all ranks by class of link, classes without any left out."""
        sums = {wire: round(sum(self.sent[wire])) for wire in WIRES}
        return {wire: amount for wire, amount in sums.items() if amount}

    def seconds(self, hardware: Hardware) -> float:
        """Until the busiest port of any rank is done; ports and directions work side by side.

        With `link.shared_port`, traffic within and between nodes goes through one port.
        """
        used = [wire for wire in WIRES if any(self.sent[wire])]
        if not used:
            return 0.0
        links = {wire: hardware.link(wire) for wire in used}
        one_port = [wire for wire in used if wire is not LinkClass.SAME_CARD]
        if hardware.si("link.shared_port"):
            ports = [one_port, [wire for wire in used if wire is LinkClass.SAME_CARD]]
        else:
            ports = [[wire] for wire in used]
        busiest = max(
            _busiest(amounts, port, {wire: links[wire].bytes_per_s for wire in port})
            for port in ports
            for amounts in (self.sent, self.received)
        )
        return busiest + max(link.latency_s for link in links.values())


def peer_sums(topology: Topology, values: Sequence[float]) -> dict[LinkClass, list[float]]:
    """For every rank, the sum of `values` over its peers of each class of link: [class][rank].

    Linear in the number of ranks.

    Args:
        values: one for every rank.
    """
    check_length(topology, values, "values")
    dies, per_node = topology.dies_per_card, topology.ranks_per_node
    cards = _block_sums(values, dies)
    nodes = _block_sums(values, per_node)
    everything = sum(nodes)
    return {
        LinkClass.SAME_CARD: [cards[r // dies] - value for r, value in enumerate(values)],
        LinkClass.INTRA_NODE: [
            nodes[r // per_node] - cards[r // dies] for r in range(topology.world_size)
        ],
        LinkClass.INTER_NODE: [
            everything - nodes[r // per_node] for r in range(topology.world_size)
        ],
    }


def product(left: Sequence[float], right: ByRank) -> dict[LinkClass, list[float]]:
    """left[rank] * right[class][rank]."""
    return {wire: [a * b for a, b in zip(left, right[wire])] for wire in WIRES}


def from_matrix(topology: Topology, traffic: Sequence[Sequence[float]]) -> PortLoad:
    """Loads of an exchange in which rank i sends traffic[i][j] to rank j."""
    check_length(topology, traffic, "traffic")
    ranks = range(topology.world_size)
    sent = {wire: [0.0] * len(ranks) for wire in WIRES}
    received = {wire: [0.0] * len(ranks) for wire in WIRES}
    for source in ranks:
        check_length(topology, traffic[source], f"traffic[{source}]")
        for target in ranks:
            wire = topology.link(source, target)
            if wire is not LinkClass.LOCAL:
                sent[wire][source] += traffic[source][target]
                received[wire][target] += traffic[source][target]
    return PortLoad(sent, received)


def check_length(topology: Topology, values: Sequence, what: str) -> None:
    """Raise ConfigError unless `values` has one entry for every rank of `topology`."""
    if len(values) != topology.world_size:
        raise ConfigError(
            f"{what}: got {len(values)} entries for {topology.world_size} ranks ({topology}); give "
            "one for every rank"
        )


def _added(left: ByRank, right: ByRank) -> dict[LinkClass, list[float]]:
    return {wire: [a + b for a, b in zip(left[wire], right[wire])] for wire in WIRES}


def _scaled(amounts: ByRank, factor: float) -> dict[LinkClass, list[float]]:
    return {wire: [amount * factor for amount in amounts[wire]] for wire in WIRES}


def _block_sums(values: Sequence[float], block: int) -> list[float]:
    return [sum(values[i : i + block]) for i in range(0, len(values), block)]


def _busiest(
    amounts: ByRank, port: Sequence[LinkClass], bytes_per_s: Mapping[LinkClass, float]
) -> float:
    if not port:
        return 0.0
    rates = [bytes_per_s[wire] for wire in port]
    if len(port) == 1:
        return max(amounts[port[0]]) / rates[0]
    # Most ranks have equal loads: take the distinct ones.
    loads = set(zip(*(amounts[wire] for wire in port)))
    return max(sum(amount / rate for amount, rate in zip(load, rates)) for load in loads)
