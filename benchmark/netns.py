"""A small cluster on one machine: a network namespace a rank, a bridge, and links of set rates.

Every rank has one port with two classes of traffic, to its own node and to other nodes, each with
a rate of its own in both directions (token buckets of `tc`). Needs root, `ip` and `tc`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid

from sglang_ascend.comm.topology import LinkClass, Topology
from sglang_ascend.errors import ConfigError

#: Name of a rank's interface inside its namespace.
INTERFACE = "eth0"
_TIMEOUT_S = 30
_BURST_S = 100e-6
_TCP = {
    "tcp_congestion_control": "reno",
    "tcp_slow_start_after_idle": "0",
    "tcp_wmem": "4096 1048576 4194304",
    "tcp_rmem": "4096 1048576 4194304",
}


def missing() -> str | None:
    """What this machine lacks for namespaces with shaped links, or None if it lacks nothing."""
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"the command {tool} (Debian package iproute2)"
    if os.geteuid() != 0:
        return "root, which may make network namespaces"
    try:
        with Cluster(Topology(1, 1), 1e6, 1e6):
            return None
    except ConfigError as error:
        return f"the right to make and shape links: {error}"


class Cluster:
    """Namespaces of all ranks while the context lasts.

    Args:
        topology: one namespace a rank.
        intra_bytes_per_s: of a rank's port for traffic within its node, each direction.
        inter_bytes_per_s: the same for traffic between nodes.
    """

    interface = INTERFACE

    def __init__(self, topology: Topology, intra_bytes_per_s: float, inter_bytes_per_s: float):
        self._topology = topology
        self._rates = {
            LinkClass.INTRA_NODE: intra_bytes_per_s,
            LinkClass.INTER_NODE: inter_bytes_per_s,
        }
        self._prefix = f"ep-{uuid.uuid4().hex[:8]}"
        self._made: list[str] = []

    def __enter__(self) -> Cluster:
        try:
            self._add_namespace("switch")
            _run("ip", "-n", self._name("switch"), "link", "add", "br0", "type", "bridge")
            _run("ip", "-n", self._name("switch"), "link", "set", "br0", "up")
            for rank in range(self._topology.world_size):
                self._add_rank(rank)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        while self._made:
            _run("ip", "netns", "del", self._made.pop())

    def command(self, rank: int) -> list[str]:
        """Put before a command to run it where `rank` lives."""
        return ["ip", "netns", "exec", self._name(str(rank))]

    def _name(self, what: str) -> str:
        return f"{self._prefix}-{what}"

    def _add_namespace(self, what: str) -> None:
        _run("ip", "netns", "add", self._name(what))
        self._made.append(self._name(what))

    def address(self, rank: int) -> str:
        """IP address of a rank."""
        return f"10.77.{self._topology.node_of(rank)}.{rank + 1}"

    def _add_rank(self, rank: int) -> None:
        here, switch, port = self._name(str(rank)), self._name("switch"), f"port{rank}"
        self._add_namespace(str(rank))
        _run("ip", "link", "add", port, "netns", switch, "type", "veth",
             "peer", "name", INTERFACE, "netns", here)  # fmt: skip
        _run("ip", "-n", switch, "link", "set", port, "master", "br0", "up")
        _run("ip", "-n", here, "addr", "add", f"{self.address(rank)}/16", "dev", INTERFACE)
        for namespace, device in ((here, INTERFACE), (switch, port)):
            # Segments of 64 KiB would pass a token bucket in bursts.
            _run("ip", "-n", namespace, "link", "set", device, "gso_max_segs", "1")
        for device in (INTERFACE, "lo"):
            _run("ip", "-n", here, "link", "set", device, "up")
        # RDMA neither starts slowly nor probes for the rate, as BBR would.
        for key, value in _TCP.items():
            _run(
                "ip", "netns", "exec", here, "sh", "-c", f"echo {value} > /proc/sys/net/ipv4/{key}"
            )
        _run("ip", "-n", here, "route", "replace", "10.77.0.0/16", "dev", INTERFACE,
             "initcwnd", "1000", "initrwnd", "1000")  # fmt: skip
        self._shape(here, INTERFACE, rank, "dst")
        self._shape(switch, port, rank, "src")

    def _shape(self, namespace: str, device: str, rank: int, peer_is: str) -> None:
        """A token bucket for each kind of link, in which the peers take turns.

        Without turns, messages to one peer would wait for those to another, unlike on the queue
        pairs of a NIC. Packets below 128 B pass free: TCP's acknowledgements, which RDMA does not
        send through the data's queue, and nothing of a payload's size.
        """
        tc = ("ip", "netns", "exec", namespace, "tc")
        _run(*tc, "qdisc", "add", "dev", device, "root", "handle", "1:", "htb", "default", "1")
        _add_class(tc, device, "1:", "1:1", 10e9, 10e9)
        short = ("u16", "0x0000", "0xff80", "at", "2")  # total length in the IP header
        _add_filter(tc, device, 1, short, "1:1")
        for wire, rate in self._rates.items():
            peers = [
                peer
                for peer in range(self._topology.world_size)
                if self._topology.link(rank, peer) is wire
            ]
            if not peers:
                continue
            bucket = f"1:{'10' if wire is LinkClass.INTRA_NODE else '20'}"
            _add_class(tc, device, "1:", bucket, rate, rate)
            for peer in peers:
                leaf = f"1:{100 + peer:x}"
                _add_class(tc, device, bucket, leaf, rate / len(peers), rate)
                # Long enough that no packet is lost.
                _run(*tc, "qdisc", "add", "dev", device, "parent", leaf, "pfifo",
                     "limit", "100000")  # fmt: skip
                _add_filter(tc, device, 2, ("ip", peer_is, f"{self.address(peer)}/32"), leaf)


def _add_class(
    tc: tuple[str, ...], device: str, parent: str, name: str, rate: float, ceiling: float
) -> None:
    """rate, ceiling: bytes/s, sure and at most."""
    burst = str(max(1600, int(ceiling * _BURST_S)))
    _run(*tc, "class", "add", "dev", device, "parent", parent, "classid", name, "htb",
         "rate", f"{int(rate * 8)}bit", "ceil", f"{int(ceiling * 8)}bit",
         "burst", burst, "cburst", burst, "quantum", "1514")  # fmt: skip


def _add_filter(
    tc: tuple[str, ...], device: str, priority: int, match: tuple[str, ...], flow: str
) -> None:
    _run(*tc, "filter", "add", "dev", device, "parent", "1:", "protocol", "ip",
         "prio", str(priority), "u32", "match", *match, "flowid", flow)  # fmt: skip


class Loopback:
    """All ranks on the loopback interface, without limits: checks the code, not the choice."""

    interface = "lo"

    def __enter__(self) -> Loopback:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def command(self, rank: int) -> list[str]:
        return []


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"`{' '.join(command)}` did not end in {_TIMEOUT_S} s") from error
    if done.returncode:
        raise ConfigError(f"`{' '.join(command)}` failed: {' '.join(done.stderr.split())}")
