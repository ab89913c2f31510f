"""Collectives of equal ranks cost what the general formulas say of them."""

from __future__ import annotations

import pytest

from sglang_ascend.comm import cost, cost_dedup, cost_uniform, row_traffic
from sglang_ascend.comm.gather_load import ALGORITHMS
from sglang_ascend.comm.hardware import load_hardware
from sglang_ascend.comm.topology import LinkClass, Topology

PLACES = [
    ("a2_910b_313t", Topology(4, 8)),
    ("a2_910b_313t", Topology(3, 1)),
    ("cm384_910c", Topology(5, 8, 2)),
    ("cm384_910c", Topology(1, 4, 2)),
    ("cm384_910c", Topology(1, 1, 1)),
]


def _same(general, uniform):
    assert uniform.seconds == pytest.approx(general.seconds, rel=1e-9)
    assert uniform.bytes_by_link == general.bytes_by_link
    assert uniform.posts == general.posts


@pytest.mark.parametrize(("name", "place"), PLACES, ids=str)
def test_gathers_and_all_to_all(name, place):
    hardware, world = load_hardware(name), place.world_size
    for algorithm in ALGORITHMS:
        _same(
            cost.all_gather(place, hardware, [12345.0] * world, algorithm),
            cost_uniform.all_gather(place, hardware, 12345.0, algorithm),
        )
        _same(
            cost.all_reduce(place, hardware, 1000.0 * world, algorithm),
            cost_uniform.all_reduce(place, hardware, 1000.0 * world, algorithm),
        )
    general = cost.all_to_all(place, hardware, [[77.0] * world] * world)
    _same(general, cost_uniform.all_to_all(place, hardware, 77.0))


@pytest.mark.parametrize("skew", [1.0, 1.5, 8.0])
@pytest.mark.parametrize(("name", "place"), PLACES[:4], ids=str)
def test_dispatch_and_combine(name, place, skew):
    hardware, world = load_hardware(name), place.world_size
    skew = min(skew, world)
    share = row_traffic.skewed_share(world, skew)
    traffic = row_traffic.expected(place, [64] * world, 8, share)
    for run in (cost.dispatch, cost.combine):
        general = run(place, hardware, traffic, 7680.0)
        uniform = cost_uniform.dispatch(place, hardware, 64.0, 8, skew, 7680.0)
        assert uniform.seconds == pytest.approx(general.seconds, rel=1e-9)
        for wire, size in general.bytes_by_link.items():
            assert uniform.bytes_by_link[wire] == pytest.approx(size, rel=1e-6)


def test_nodes_reached_counts_what_a_draw_counts():
    assert cost_dedup.nodes_reached(1, 8) == 1
    assert cost_dedup.nodes_reached(4, 1) == pytest.approx(1)
    assert cost_dedup.nodes_reached(8, 8, 4) == pytest.approx(4 * (1 - 0.75**8))
    assert cost_dedup.nodes_reached(4, 10_000) == pytest.approx(4)


def test_once_a_node_moves_fewer_bytes_between_nodes():
    hardware, place = load_hardware("a2_910b_313t"), Topology(4, 8)
    plain = cost_uniform.dispatch(place, hardware, 64.0, 8, 1.0, 7680.0)
    once = cost_dedup.exchange(place, hardware, 64.0, 8, 7680.0)
    ratio = once.bytes(LinkClass.INTER_NODE) / plain.bytes(LinkClass.INTER_NODE)
    assert ratio == pytest.approx(4 * (1 - 0.75**8) / 8)
