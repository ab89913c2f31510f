"""Hardware constants of the links and transports in use, from a short measurement at start.

Every figure is the slowest rank's, taken from one all-gather, so all ranks end with the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from sglang_ascend.comm.exchange_cost import MoeShape, Transport, exchange
from sglang_ascend.comm.hardware import UNITS, Hardware
from sglang_ascend.comm.port_load import WIRES
from sglang_ascend.comm.row_traffic import expected
from sglang_ascend.comm.topology import LinkClass
from sglang_ascend.comm.transport import RankGroup, Where
from sglang_ascend.moe.dispatch.base import ExpertDispatch
from sglang_ascend.moe.dispatch.routing_statistics import rank_shares

_WHERE = Where(step=0, layer=0, operation="calibration")
_ROW_BYTES = 1024
_MOST_ROWS = 4096  # 4 MiB to a peer
_GROWTH = 8
_MOST_RUNS = 25
_SHARE = 0.12  # of the time left, for one measurement


@dataclass
class _Stopwatch:
    """Times that all ranks agree on, until the budget is spent."""

    group: RankGroup
    device: torch.device
    synchronize: Callable[[], None]
    deadline_s: float

    def seconds(self, action: Callable[[], object]) -> float:
        """Shortest of several runs, each as long as on the slowest rank; after one to warm up.

        Disturbances only ever add time, so the shortest repeats better than the median. Runs until
        a share of the time left is spent, four times at least, or twice when none is left.
        """
        first, late = self._agreed(self._once(action), time.perf_counter() - self.deadline_s)
        runs = max(4, min(_MOST_RUNS, int(_SHARE * -late / first))) if late < 0 else 2
        return min(self._agreed(*(self._once(action) for _ in range(runs))))

    def left(self, needed_s: float) -> bool:
        """Whether all ranks have this many seconds left."""
        return self._agreed(time.perf_counter() - self.deadline_s + needed_s)[0] < 0

    def _once(self, action: Callable[[], object]) -> float:
        started = time.perf_counter()
        action()
        self.synchronize()
        return time.perf_counter() - started

    def _agreed(self, *values: float) -> list[float]:
        """The greatest of every value over the ranks."""
        mine = torch.tensor([values], dtype=torch.float64, device=self.device)
        rows = self.group.all_gather_rows(mine, [1] * self.group.size, _WHERE)
        return rows.max(0).values.tolist()


def calibrate(
    transports: Mapping[Transport, ExpertDispatch],
    base: Hardware,
    shape: MoeShape,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    synchronize: Callable[[], None] = lambda: None,
    budget_s: float = 1.8,
) -> Hardware:
    """Measure links and both transports; all ranks call it together and get equal hardware.

    Per link class an alpha-beta fit of an exchange with the peers on it; the cost of a message from
    one peer against all; what each transport takes beyond its collectives, and for how many rows.

    Args:
        transports: both, on one group. Its ledger counts the bytes of the measurement too.
        base: constants for all that is not measured here.
        shape: of the layers that will run; must tell what the transports really send.
        dtype: of the tokens.
        synchronize: waits until the device has done what was asked of it.
        budget_s: no new measurement starts after this time.

    Returns:
        `base` with the measured constants in place of its own.
    """
    group = transports["allgather"].group
    if group.size == 1:
        return base
    source = f"measured at start on {group.topology}"
    watch = _Stopwatch(group, torch.device(device), synchronize, time.perf_counter() + budget_s / 2)
    linked = base.with_values(_links(watch, base), source)
    watch.deadline_s += budget_s / 2
    return linked.with_values(_transports(watch, transports, linked, shape, dtype), source)


def _links(watch: _Stopwatch, base: Hardware) -> dict[str, float]:
    """Bandwidth and latency of every class of link, cost of a message, fixed cost."""
    group, world = watch.group, watch.group.size
    after, before = (group.rank + 1) % world, (group.rank - 1) % world
    one = watch.seconds(
        lambda: _send(
            watch,
            [int(peer == after) for peer in range(world)],
            [int(peer == before) for peer in range(world)],
        )
    )
    peers = [int(peer != group.rank) for peer in range(world)]
    everyone = watch.seconds(lambda: _send(watch, peers, peers))
    post = max(0.0, (everyone - one) / (world - 2)) if world > 2 else 0.0
    # Every rank has as many peers of each class as any other.
    classes = [group.topology.link(group.rank, peer) for peer in range(world)]
    starts: dict[LinkClass, float] = {}
    values = {"collective.post": post}
    for wire in [wire for wire in WIRES if wire in classes]:
        peers = [int(link is wire) for link in classes]
        small, large, rows = _small_and_large(watch, peers)
        starts[wire] = small - sum(peers) * post
        if large > small:
            row_s = (large - small) / (rows - 1)
            starts[wire] -= row_s
            rate = sum(peers) * _ROW_BYTES / row_s
            values |= {f"link.{wire}.bandwidth": rate, f"link.{wire}.efficiency": 1.0}
    fixed = values["collective.fixed"] = max(0.0, min(starts.values()))
    values |= {f"link.{wire}.latency": max(0.0, starts[wire] - fixed) for wire in starts}
    return _in_units(values, base)


def _small_and_large(watch: _Stopwatch, peers: list[int]) -> tuple[float, float, int]:
    """Seconds for one row to every peer, seconds for many, and how many."""
    small = watch.seconds(lambda: _send(watch, peers, peers))
    rows, large = 1, small
    while rows < _MOST_ROWS and large < 4 * small and (rows == 1 or watch.left(_GROWTH * large)):
        rows *= _GROWTH
        counts = [rows * peer for peer in peers]
        large = watch.seconds(lambda counts=counts: _send(watch, counts, counts))
    return small, large, rows


def _send(watch: _Stopwatch, send: list[int], receive: list[int]) -> torch.Tensor:
    payload = torch.zeros(sum(send), _ROW_BYTES, dtype=torch.uint8, device=watch.device)
    return watch.group.all_to_all_rows(payload, send, receive, _WHERE)


def _transports(
    watch: _Stopwatch,
    transports: Mapping[Transport, ExpertDispatch],
    linked: Hardware,
    shape: MoeShape,
    dtype: torch.dtype,
) -> dict[str, float]:
    """What the collectives do not explain: a part for each call and a part for each row."""
    without = linked.with_values(
        {
            "transport.pack_bandwidth": 1e9,
            "transport.allgather_overhead": 0,
            "transport.dispatch_overhead": 0,
            "dispatch.row": 0,
            "dispatch.overlap": 0,
        },
        "wires alone",
    )
    topology, placement = watch.group.topology, transports["dispatch"].placement
    share = rank_shares(placement, shape, skew=1.0)
    # As few as reach all ranks.
    few = tokens = -(-placement.routed_ranks // shape.top_k)
    rest: dict[int, dict[Transport, float]] = {}
    while True:
        predicted = exchange(topology, without, [tokens] * watch.group.size, shape, share)
        taken = {
            name: watch.seconds(_layer(watch, transport, shape, tokens, dtype))
            for name, transport in transports.items()
        }
        rest[tokens] = {name: taken[name] - predicted[name].seconds for name in taken}
        # The next size takes up to four times as long, five times over.
        if tokens >= 64 * few or not watch.left(4 * 5 * sum(taken.values())):
            break
        tokens *= 4
    values = {f"transport.{name}_overhead": max(0.0, rest[few][name]) for name in transports}
    values |= {"dispatch.overlap": 0.0, "dispatch.row": 0.0}
    if tokens > few:
        # Of the two greatest numbers of tokens, what was disturbed less.
        sizes = sorted(rest)[1:][-2:]
        more = {
            name: max(0.0, min((rest[n][name] - rest[few][name]) / (n - few) for n in sizes))
            for name in transports
        }
        traffic = expected(topology, [1] * watch.group.size, shape.rows_per_token, share)
        values["dispatch.row"] = more["dispatch"] / (2 * traffic.handled)
        packed = max(traffic.received) * (shape.gather_bytes + shape.scatter_bytes)
        packed += watch.group.size * shape.scatter_bytes
        if more["allgather"]:
            values["transport.pack_bandwidth"] = packed / more["allgather"]
    return _in_units(values, linked)


def _layer(
    watch: _Stopwatch, transport: ExpertDispatch, shape: MoeShape, tokens: int, dtype: torch.dtype
) -> Callable[[], torch.Tensor]:
    """A layer without arithmetic, whose tokens choose all ranks equally."""
    placement, group = transport.placement, transport.group
    token = torch.arange(tokens, device=watch.device).unsqueeze(1) + group.rank * tokens
    nth = torch.arange(shape.top_k, device=watch.device)
    rank = (token * shape.top_k + nth) % placement.routed_ranks
    local = (token + nth // placement.routed_ranks) % placement.slots_per_rank
    ids = (rank * placement.slots_per_rank + local).to(torch.int32)
    hidden = torch.ones(tokens, shape.hidden, dtype=dtype, device=watch.device)
    weights = torch.full(ids.shape, 1 / shape.top_k, device=watch.device)
    counts = (tokens,) * group.size
    shared = (lambda rows: rows) if placement.shared_ranks else None
    return lambda: transport.run(hidden, ids, weights, counts, lambda rows, _: rows, _WHERE, shared)


def _in_units(values: Mapping[str, float], base: Hardware) -> dict[str, float]:
    """SI values in the units of `base`."""
    return {key: value / UNITS[base.constants[key].unit] for key, value in values.items()}
