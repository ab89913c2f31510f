"""Calibration: the same constants on all ranks, right ones where the truth is known, in few steps.

Ranks and exchanges are real. Where the truth has to be known, a clock is put in that advances with
each exchange by what the links of a made-up machine would take.
"""

from __future__ import annotations

import types

import pytest
import torch

from sglang_ascend.comm.exchange_cost import MoeShape
from sglang_ascend.comm.hardware import load_hardware
from sglang_ascend.comm.topology import LinkClass
from sglang_ascend.comm.transport import RankGroup
from sglang_ascend.moe.dispatch import calibration
from sglang_ascend.moe.dispatch.allgather_reducescatter import AllGatherReduceScatter
from sglang_ascend.moe.dispatch.chooser import ChooserState, StepView, choose
from sglang_ascend.moe.dispatch.dispatch_combine import DispatchCombine
from sglang_ascend.moe.dispatch.placement import ExpertPlacement
from sglang_ascend.moe.dispatch.routing_statistics import RoutingStatistics

HIDDEN, SLOTS, TOP_K = 256, 16, 2
SHAPE = MoeShape(HIDDEN, TOP_K, SLOTS, 1024, 1024, 1024, 1024, "one_level")
BASE = load_hardware("reference_cpu").with_values({"link.shared_port": 0}, "two ports")
RATES = {LinkClass.INTRA_NODE: 35e6, LinkClass.INTER_NODE: 5e6}
FIXED_S, POST_S = 2e-3, 1e-3


class TimedGroup(RankGroup):
    """Real exchanges that a clock of their own counts: as many seconds as RATES make of them."""

    now_s = 0.0
    exchanges = 0

    def _exchange(self, rows, send_counts, recv_counts, where, out=None):
        links = [self.topology.link(self.rank, peer) for peer in range(self.size)]
        wires = [
            sum(count for count, link in zip(send_counts, links) if link is wire) / rate
            for wire, rate in RATES.items()
        ]
        peers = sum(count > 0 and peer != self.rank for peer, count in enumerate(send_counts))
        self.now_s += FIXED_S + POST_S * peers + max(wires) * rows.shape[1]
        self.exchanges += 1
        return super()._exchange(rows, send_counts, recv_counts, where, out)


def _transports(group):
    placement = ExpertPlacement(group.size, SLOTS)
    return {
        "allgather": AllGatherReduceScatter(group, placement),
        "dispatch": DispatchCombine(group, placement, eager_bytes=0),
    }


def _constants(hardware):
    return {key: (c.value, c.unit, c.source) for key, c in hardware.constants.items()}


def _calibrated(group, budget_s):
    return _constants(calibration.calibrate(_transports(group), BASE, SHAPE, budget_s=budget_s))


def _on_a_known_machine(group, budget_s):
    timed = TimedGroup(group.process_group, group.topology, timeout_s=30)
    calibration.time = types.SimpleNamespace(perf_counter=lambda: timed.now_s)
    try:
        hardware = calibration.calibrate(_transports(timed), BASE, SHAPE, budget_s=budget_s)
    finally:
        import time

        calibration.time = time
    took, exchanges = timed.now_s, timed.exchanges
    layers = {}
    for name, transport in _transports(timed).items():
        for tokens in (4, 32, 200):
            before = timed.now_s
            layer = calibration._layer(_watch(timed), transport, SHAPE, tokens, torch.float32)
            layer()
            layers[name, tokens] = timed.now_s - before
    routing = RoutingStatistics(ExpertPlacement(group.size, SLOTS))
    predicted = {}
    for tokens in (4, 32, 200):
        view = StepView((tokens,) * group.size, group.topology, SHAPE, routing, hardware)
        choice = choose(view, ChooserState())
        predicted |= {(name, tokens): s for name, s in choice.predicted_s.items()}
    return _constants(hardware), took, exchanges, layers, predicted


def _watch(group):
    return calibration._Stopwatch(group, torch.device("cpu"), lambda: None, 0.0)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_all_ranks_get_the_same_bits(ranks, world):
    results = ranks.run(world, _calibrated, 0.3)
    assert all(result == results[0] for result in results)
    measured = {
        key for key, (_, _, source) in results[0].items() if source.startswith("measured at start")
    }
    if world == 1:
        assert not measured
    else:
        assert {"collective.fixed", "collective.post", "dispatch.row"} <= measured
        assert {"transport.allgather_overhead", "transport.dispatch_overhead"} <= measured
    assert not {key for key in measured if key.startswith(("compute", "memory", "node"))}


@pytest.fixture(scope="module")
def known(ranks):
    results = ranks.run(4, _on_a_known_machine, 1.8)
    assert all(result[0] == results[0][0] for result in results)
    return results[0]


def test_links_are_found(known):
    constants = known[0]
    for wire, rate in RATES.items():
        assert constants[f"link.{wire}.bandwidth"][0] * 1e9 == pytest.approx(rate, rel=0.02)
        assert constants[f"link.{wire}.efficiency"][0] == 1
    assert constants["collective.post"][0] * 1e-6 == pytest.approx(POST_S, rel=0.15)
    assert constants["collective.fixed"][0] * 1e-6 == pytest.approx(FIXED_S, rel=0.15)


def test_layers_are_predicted(known):
    *_, layers, predicted = known
    for key, seconds in layers.items():
        # Chance makes rows uneven, which the prediction knows and these tokens are not.
        assert seconds <= predicted[key] * 1.05
        assert predicted[key] <= seconds * (1.05 if key[0] == "allgather" else 1.6)


def test_it_stays_within_its_budget(known):
    _, took, *_ = known
    assert 0.9 < took < 2.0


def test_without_time_every_measurement_still_runs_twice(ranks):
    _, _, exchanges, *_ = ranks.run(4, _on_a_known_machine, 0.0)[0]
    # Each measurement: one run to warm up, an agreement, two runs, an agreement. Six on links (one
    # peer, all peers, one row and many on both kinds), two on transports of 2 and 3 exchanges;
    # and three questions whether time is left.
    assert exchanges == 6 * (3 + 2) + (3 * 2 + 2) + (3 * 3 + 2) + 3
