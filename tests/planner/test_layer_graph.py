"""The declared layer graph, and its schedule."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_ascend.comm.layer_graph import Engine, LayerKind, layer, stacked
from sglang_ascend.planner import schedule

BOOLS = (False, True)
KINDS = [
    LayerKind(mla, moe, tp, world, dispatch, shared, flashcomm, conversion, streams, dense)
    for mla, moe, tp, world, dispatch, shared, flashcomm, conversion, streams, dense in
    itertools.product(BOOLS, BOOLS, (1, 4), (1, 8), BOOLS, BOOLS, BOOLS, BOOLS, BOOLS, BOOLS)
    if world >= tp
]  # fmt: skip


def test_every_kind_of_layer_is_a_graph_in_order():
    for kind in KINDS:
        nodes = layer(kind)
        names = [node.name for node in nodes]
        assert len(set(names)) == len(names)
        for i, node in enumerate(nodes):
            assert set(node.after) <= set(names[:i])
            assert bool(node.after) == (i > 0)


def test_a_single_rank_talks_to_nobody():
    for kind in KINDS:
        if kind.world == 1:
            assert {node.engine for node in layer(kind)} == {Engine.CORES}


def test_without_streams_a_layer_is_a_chain():
    for kind in KINDS:
        if not kind.multi_stream:
            nodes = layer(kind)
            assert all(b.after == (a.name,) for a, b in zip(nodes, nodes[1:]))


def test_gate_and_shared_expert_run_beside_the_gather():
    nodes = {
        n.name: n for n in layer(LayerKind(True, True, 1, 8, shared_here=True, multi_stream=True))
    }
    assert nodes["gate"].after == nodes["expert_gather"].after == ("mlp_norm",)
    assert set(nodes["route"].after) == {"expert_gather", "gate"}
    assert set(nodes["expert_sum"].after) == {"expert_reduce_scatter", "shared_expert"}


def _durations(nodes, values):
    return {node.name: value for node, value in zip(nodes, itertools.cycle(values))}


DURATIONS = st.lists(st.floats(1e-6, 1e-3), min_size=3, max_size=17)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), DURATIONS, st.integers(1, 2), st.integers(1, 3))
def test_schedule_respects_order_and_engines(kind, values, batches, layers):
    nodes = layer(kind)
    seconds = _durations(nodes, values)
    placed = schedule.placed_stack(nodes, seconds, layers, batches)
    assert len(placed) == len(nodes) * batches * layers
    ends = {p.node.name: p.end_s for p in placed}
    for p in placed:
        assert p.end_s - p.start_s == pytest.approx(seconds[p.node.name.split("/")[0]])
        assert all(p.start_s >= ends[name] - 1e-15 for name in p.node.after)
    for engine in Engine:
        own = sorted((p.start_s, p.end_s) for p in placed if p.node.engine is engine)
        assert all(a[1] <= b[0] + 1e-15 for a, b in zip(own, own[1:]))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), DURATIONS)
def test_layer_time_lies_between_its_busiest_engine_and_the_sum(kind, values):
    nodes = layer(kind)
    seconds = _durations(nodes, values)
    busy = [sum(seconds[n.name] for n in nodes if n.engine is engine) for engine in Engine]
    one = schedule.layer_seconds(nodes, seconds)
    assert max(busy) - 1e-12 <= one <= sum(busy) + 1e-12
    two = schedule.layer_seconds(nodes, seconds, 2)
    assert two >= 2 * max(busy) * 0.75 - 1e-12


def test_a_chain_takes_the_sum():
    nodes = layer(LayerKind(True, True, 1, 8))
    seconds = {node.name: 1e-6 * (i + 1) for i, node in enumerate(nodes)}
    assert schedule.layer_seconds(nodes, seconds) == pytest.approx(sum(seconds.values()))


def test_two_micro_batches_hide_network_behind_compute():
    nodes = layer(LayerKind(True, True, 1, 8))
    seconds = {n.name: 1.0 if n.engine is Engine.CORES else 3.0 for n in nodes}
    one, two = (schedule.layer_seconds(nodes, seconds, n) for n in (1, 2))
    assert two < 1.7 * one


def test_stacked_layers_follow_one_another():
    nodes = layer(LayerKind(True, True, 1, 8))
    second = stacked(nodes, 2, 2)[2]
    assert second[0].after == (f"{nodes[-1].name}/0/0",)
