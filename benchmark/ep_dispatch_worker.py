"""One rank of benchmark.ep_dispatch: runs every cell over both transports and times them.

    python -m benchmark.ep_dispatch_worker PLAN.json RANK

Rank 0 writes one JSON line for the calibration and one for every cell to standard output.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from sglang_ascend.comm.exchange_cost import TRANSPORTS, MoeShape, exchange
from sglang_ascend.comm.hardware import Hardware, load_hardware
from sglang_ascend.comm.row_traffic import skewed_share
from sglang_ascend.comm.topology import LinkClass, Topology
from sglang_ascend.comm.transport import RankGroup, Where
from sglang_ascend.moe.dispatch.allgather_reducescatter import AllGatherReduceScatter
from sglang_ascend.moe.dispatch.base import ExpertDispatch
from sglang_ascend.moe.dispatch.calibration import calibrate
from sglang_ascend.moe.dispatch.chooser import ChooserState, StepView, choose
from sglang_ascend.moe.dispatch.dispatch_combine import DispatchCombine
from sglang_ascend.moe.dispatch.placement import ExpertPlacement
from sglang_ascend.moe.dispatch.routing_statistics import RoutingMonitor

_WHERE = Where(step=0, layer=0, operation="benchmark")


class LinkGroup(RankGroup):
    """A group whose exchanges behave on a shaped TCP network as a NIC's would.

    - Before each exchange a rank sleeps for the latency of its farthest link and for starting one
      message to every peer on another node.
    - All messages are under way at once and share the ports. Gloo's own all-to-all goes in rounds
      that leave ports idle: here it took up to 1.7 times as long.
    """

    def set_links(self, latency_s: dict[str, float], post_s: float) -> None:
        links = [self.topology.link(self.rank, peer) for peer in range(self.size)]
        self._delay_s = max(latency_s.get(link, 0.0) for link in links)
        self._delay_s += post_s * links.count(LinkClass.INTER_NODE)

    def _exchange(self, rows, send_counts, recv_counts, where, out=None) -> torch.Tensor:
        if out is None:
            out = rows.new_empty(sum(recv_counts), rows.shape[1])
        sent, received = rows.split(list(send_counts)), out.split(list(recv_counts))
        time.sleep(self._delay_s)
        waits = []
        for distance in range(1, self.size):
            peer = (self.rank - distance) % self.size
            if len(received[peer]):
                waits.append(self.process_group.recv([received[peer]], peer, 0))
        for distance in range(1, self.size):
            peer = (self.rank + distance) % self.size
            if len(sent[peer]):
                waits.append(self.process_group.send([sent[peer]], peer, 0))
        received[self.rank].copy_(sent[self.rank])
        for work in waits:
            work.wait(timedelta(seconds=self.timeout_s))
        self._record(where, [count * rows.shape[1] for count in send_counts])
        return out


class Rank:
    """This rank's end of the benchmark."""

    def __init__(self, plan: dict[str, Any], rank: int):
        self.plan, self.rank = plan, rank
        self.topology = Topology(plan["nodes"], plan["ranks"] // plan["nodes"])
        dist.init_process_group(
            "gloo",
            init_method=f"file://{plan['store']}",
            rank=rank,
            world_size=plan["ranks"],
            timeout=timedelta(seconds=plan["timeout_s"]),
        )
        self.control = RankGroup(dist.group.WORLD, self.topology, timeout_s=plan["timeout_s"])
        self.group = LinkGroup(dist.group.WORLD, self.topology, timeout_s=plan["timeout_s"])
        self.group.set_links(plan["latency_s"], plan["post_s"])
        self.placement = ExpertPlacement(plan["ranks"], plan["slots"])
        self.transports: dict[str, ExpertDispatch] = {
            "allgather": AllGatherReduceScatter(self.group, self.placement),
            # Exact rows, as on the NPU: on slow links padding would cost more than it saves.
            "dispatch": DispatchCombine(self.group, self.placement, eager_bytes=0),
        }
        self.hardware: dict[int, Hardware] = {}

    def shape(self, top_k: int) -> MoeShape:
        """float32 on the wire, and gloo's exchange between all pairs."""
        token = 4 * self.plan["hidden"]
        return MoeShape(
            self.plan["hidden"], top_k, self.plan["slots"], token, token, token, token, "one_level"
        )

    def run(self) -> None:
        base = load_hardware("reference_cpu").with_values(
            {"link.shared_port": float(self.plan["shared_port"])}, "how this benchmark joins ranks"
        )
        for top_k in sorted({cell["top_k"] for cell in self.plan["cells"]}):
            started = time.perf_counter()
            hardware = calibrate(self.transports, base, self.shape(top_k))
            self.hardware[top_k] = hardware
            took = self.agreed(time.perf_counter() - started)
            measured = {
                key: constant.value
                for key, constant in hardware.constants.items()
                if constant.source.startswith("measured at start")
            }
            self.say({"calibration": {"top_k": top_k, "seconds": took, "constants": measured}})
        for number, cell in enumerate(self.plan["cells"]):
            self.say({"cell": self.cell(number, **cell)})

    def cell(self, number: int, tokens: int, routing: str, top_k: int) -> dict[str, Any]:
        """Both transports in turn, on the same tokens, new ones every time."""
        generator = torch.Generator().manual_seed(1000 * number + self.rank)
        repeats, world = self.plan["repeats"], self.plan["ranks"]
        counts, shape = (tokens,) * world, self.shape(top_k)
        hidden = torch.randn(tokens, self.plan["hidden"], generator=generator)
        weights = torch.full((tokens, top_k), 1 / top_k)
        monitor = RoutingMonitor(self.control, self.placement, layers=1, every=8)
        while not monitor.end_step(_WHERE):
            monitor.add(0, self.ids(generator, max(tokens, 32), routing, top_k))
        view = StepView(counts, self.topology, shape, monitor.statistics, self.hardware[top_k])
        started = time.perf_counter()
        choice = choose(view, ChooserState())
        choose_s = time.perf_counter() - started
        if self.agreed(*[float(choice.transport == name) for name in TRANSPORTS]) not in (
            [1.0, 0.0],
            [0.0, 1.0],
        ):
            raise RuntimeError(f"rank {self.rank} chose {choice.transport}, others did not")
        times: dict[str, list[float]] = {name: [] for name in TRANSPORTS}
        sent: dict[str, dict[str, int]] = {}
        for repeat in range(-1, repeats):  # the first is to warm up
            ids = self.ids(generator, tokens, routing, top_k)
            for name in TRANSPORTS if repeat % 2 else reversed(TRANSPORTS):
                self.group.ledger.reset()
                self.agreed(0.0)
                begun = time.perf_counter()
                self.transports[name].run(
                    hidden, ids, weights, counts, lambda rows, _: rows, _WHERE
                )
                taken = self.agreed(time.perf_counter() - begun)
                if repeat >= 0:
                    times[name].append(taken[0])
                    sent[name] = self.bytes_sent()
        share = skewed_share(world, monitor.statistics.skew)
        costs = exchange(self.topology, self.hardware[top_k], counts, shape, share)
        return {
            "nodes": self.plan["nodes"],
            "tokens": tokens,
            "routing": routing,
            "top_k": top_k,
            "skew": monitor.statistics.skew,
            "times_s": times,
            "median_s": {name: median(values) for name, values in times.items()},
            "predicted_s": choice.predicted_s,
            "bytes": sent,
            "predicted_bytes": {name: costs[name].bytes_by_link for name in TRANSPORTS},
            "choice": choice.transport,
            "reason": choice.reason,
            "choose_s": self.agreed(choose_s)[0],
        }

    def ids(
        self, generator: torch.Generator, tokens: int, routing: str, top_k: int
    ) -> torch.Tensor:
        """[tokens, top_k] distinct slots; skewed routing prefers those of rank 0."""
        weight = torch.ones(self.plan["slots"])
        if routing == "skewed":
            weight[: self.placement.slots_per_rank] = self.plan["hot_weight"]
        picks = torch.multinomial(weight.expand(tokens, -1), top_k, generator=generator)
        return picks.to(torch.int32)

    def agreed(self, *values: float) -> list[float]:
        """The greatest of every value over the ranks, once all have come here."""
        rows = self.control.all_gather_rows(
            torch.tensor([values], dtype=torch.float64), [1] * self.plan["ranks"], _WHERE
        )
        return rows.max(0).values.tolist()

    def bytes_sent(self) -> dict[str, int]:
        """Bytes of the last run over all ranks, by class of link, copies within a rank left out."""
        links = [link for link in LinkClass if link is not LinkClass.LOCAL]
        mine = self.group.ledger.bytes_by_link()
        row = torch.tensor([[mine[link] for link in links]])
        totals = self.control.all_gather_rows(row, [1] * self.plan["ranks"], _WHERE).sum(0)
        return {link: total for link, total in zip(links, totals.tolist()) if total}

    def say(self, record: dict[str, Any]) -> None:
        if self.rank == 0:
            print(json.dumps(record), flush=True)


def take_priority() -> None:
    """Real-time priority for this process and the threads it will start, where that is allowed.

    The ranks hardly compute; without priority, other load on the machine would be timed instead of
    the wire.
    """
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def main() -> None:
    torch.set_num_threads(1)
    plan = json.loads(Path(sys.argv[1]).read_text())
    if plan["priority"]:
        take_priority()
    with torch.inference_mode():
        Rank(plan, int(sys.argv[2])).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
