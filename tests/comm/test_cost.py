"""Collective costs: bytes as a loop over messages counts them, and time that obeys the obvious."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_ascend.comm import cost
from sglang_ascend.comm.gather_load import ALGORITHMS
from sglang_ascend.comm.hardware import load_hardware
from sglang_ascend.comm.row_traffic import counted, expected, skewed_share
from sglang_ascend.comm.topology import LinkClass, Topology
from sglang_ascend.errors import ConfigError

A2, A3 = load_hardware("a2_910b_376t"), load_hardware("a3_910c")
TOPOLOGIES = [Topology(1, 1), Topology(1, 4), Topology(4, 1), Topology(2, 3), Topology(3, 2, 2)]

topologies = st.builds(Topology, st.integers(1, 3), st.integers(1, 3), st.integers(1, 2))
algorithms = st.sampled_from(sorted(ALGORITHMS))


def hardware_for(topology):
    return A3 if topology.dies_per_card > 1 else A2


def _tally(topology, messages):
    """Bytes by link class of (source, target, bytes), copies within a rank left out."""
    tally = {}
    for source, target, nbytes in messages:
        wire = topology.link(source, target)
        if wire is not LinkClass.LOCAL and nbytes:
            tally[wire] = tally.get(wire, 0) + nbytes
    return tally


def _gather_messages(topology, sizes, algorithm):
    ranks, per_node = range(topology.world_size), topology.ranks_per_node
    if algorithm == "one_level":
        return [(r, p, sizes[r]) for r in ranks for p in ranks]
    if algorithm == "ring":
        held = list(ranks)  # the piece that each rank got last
        messages = []
        for _ in ranks[1:]:
            messages += [(r, (r + 1) % len(ranks), sizes[held[r]]) for r in ranks]
            held = [held[r - 1] for r in ranks]
        return messages
    messages = []
    for r in ranks:
        same_place = [p for p in ranks if p % per_node == r % per_node]
        messages += [(r, p, sizes[r]) for p in same_place]
        neighbours = [p for p in ranks if topology.node_of(p) == topology.node_of(r)]
        messages += [(r, p, sizes[q]) for p in neighbours for q in same_place]
    return messages


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_gather_bytes_by_enumeration(topology, algorithm):
    sizes = [(7 * r) % 5 * 100 for r in range(topology.world_size)]
    expected_bytes = _tally(topology, _gather_messages(topology, sizes, algorithm))
    hardware = hardware_for(topology)
    assert cost.all_gather(topology, hardware, sizes, algorithm).bytes_by_link == expected_bytes


@settings(max_examples=40, deadline=None)
@given(topologies, algorithms, st.data())
def test_reduce_scatter_mirrors_all_gather(topology, algorithm, data):
    sizes = data.draw(st.lists(st.integers(0, 10**6), min_size=18, max_size=18))
    sizes = sizes[: topology.world_size]
    args = (topology, hardware_for(topology), sizes, algorithm)
    assert cost.reduce_scatter(*args) == cost.all_gather(*args)


def test_all_reduce_moves_what_its_halves_move():
    topology, nbytes = Topology(2, 4), 8 * 1000
    halves = cost.all_gather(topology, A2, [1000] * 8) + cost.reduce_scatter(
        topology, A2, [1000] * 8
    )
    whole = cost.all_reduce(topology, A2, nbytes)
    assert whole.bytes_by_link == halves.bytes_by_link
    # One start less, and the pipeline between and within nodes fills once instead of twice.
    once = halves.seconds - A2.si("collective.fixed")
    assert 0.75 * once < whole.seconds < once
    ring = cost.all_gather(topology, A2, [1000] * 8, "ring")
    twice = 2 * ring.seconds - A2.si("collective.fixed")
    assert cost.all_reduce(topology, A2, nbytes, "ring").seconds == pytest.approx(twice)
    assert cost.all_reduce(Topology(1, 1), A2, nbytes) == cost.NOTHING


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
def test_all_to_all_and_dispatch_by_enumeration(topology):
    ranks = range(topology.world_size)
    rows = [[(3 * s + 5 * d) % 7 for d in ranks] for s in ranks]
    messages = [(s, d, rows[s][d] * 10) for s in ranks for d in ranks]
    hardware = hardware_for(topology)
    traffic = [[row * 10 for row in line] for line in rows]
    assert cost.all_to_all(topology, hardware, traffic).bytes_by_link == _tally(topology, messages)
    sent = counted(topology, rows)
    assert cost.dispatch(topology, hardware, sent, 10).bytes_by_link == _tally(topology, messages)
    back = cost.combine(topology, hardware, sent, 10)
    assert back.bytes_by_link == _tally(topology, [(d, s, n) for s, d, n in messages])
    assert back.posts == topology.world_size - 1


@settings(max_examples=40, deadline=None)
@given(topologies, st.integers(1, 8), st.floats(1, 2), st.data())
def test_expected_traffic_is_the_outer_product(topology, top_k, skew, data):
    world = topology.world_size
    tokens = data.draw(st.lists(st.integers(0, 100), min_size=world, max_size=world))
    share = skewed_share(world, min(skew, world))
    mean = expected(topology, tokens, top_k, share)
    matrix = counted(topology, [[count * top_k * part for part in share] for count in tokens])
    assert mean.received == pytest.approx(matrix.received)
    for wire, amounts in matrix.load.sent.items():
        assert mean.load.sent[wire] == pytest.approx(amounts)
        assert mean.load.received[wire] == pytest.approx(matrix.load.received[wire])
    if sum(tokens):
        assert mean.skew == pytest.approx(min(skew, world))


@settings(max_examples=60, deadline=None)
@given(topologies, algorithms, st.integers(0, 10**7), st.integers(1, 10**7))
def test_time_grows_with_bytes_and_shrinks_with_bandwidth(topology, algorithm, size, more):
    hardware, world = hardware_for(topology), topology.world_size

    def seconds(nbytes, on=hardware):
        return cost.all_gather(topology, on, [nbytes] * world, algorithm).seconds

    assert seconds(size) <= seconds(size + more)
    for key in ("link.intra_node.bandwidth", "link.inter_node.bandwidth"):
        faster = hardware.with_values({key: hardware.constants[key].value * 2}, "what if")
        assert seconds(size, faster) <= seconds(size)


@settings(max_examples=40, deadline=None)
@given(topologies, st.integers(1, 8), st.integers(0, 300), st.floats(1, 4), st.floats(0, 3))
def test_skew_never_makes_dispatch_faster(topology, top_k, tokens, skew, more):
    world, hardware = topology.world_size, hardware_for(topology)

    def seconds(at):
        share = skewed_share(world, min(at, world))
        traffic = expected(topology, [tokens] * world, top_k, share)
        return cost.dispatch(topology, hardware, traffic, 7680).seconds

    assert seconds(skew) <= seconds(skew + more) * (1 + 1e-9)


def test_the_busiest_port_counts_in_either_direction():
    topology, ideal, world = Topology(1, 8), A2.ideal(), 8
    to_first = [[1e6 * (target == 0) for target in range(world)] for _ in range(world)]
    from_first = [list(column) for column in zip(*to_first)]
    for traffic in (to_first, from_first):
        assert cost.all_to_all(topology, ideal, traffic).seconds == pytest.approx(7e6 / 196e9)


def test_two_levels_send_less_between_nodes_than_one():
    topology, sizes = Topology(4, 8), [7168] * 32
    between = {
        name: cost.all_gather(topology, A2, sizes, name).bytes(LinkClass.INTER_NODE) / 7168 / 32
        for name in ALGORITHMS
    }
    assert between == {"one_level": 24, "two_level": 3, "ring": 31 / 8}


def test_one_port_adds_the_stages_and_two_ports_hide_the_shorter():
    ideal = A2.ideal()
    shared = ideal.with_values({"link.shared_port": 1}, "what if")
    topology, sizes = Topology(2, 2), [10**6] * 4
    between, within = 1e6 / 25e9, 2e6 / 196e9
    assert cost.all_gather(topology, shared, sizes).seconds == pytest.approx(between + within)
    assert cost.all_gather(topology, ideal, sizes).seconds == pytest.approx(between + within / 2)


def test_nobody_to_talk_to_costs_nothing_and_empty_pieces_cost_the_fixed_part():
    alone = Topology(1, 1)
    assert cost.all_gather(alone, A2, [10**9]) == cost.NOTHING
    assert cost.all_to_all(alone, A2, [[10**9]]) == cost.NOTHING
    empty = cost.all_gather(Topology(1, 8), A2, [0] * 8)
    assert empty.bytes_by_link == {} and empty.seconds == A2.si("collective.fixed")


def test_bad_input_is_named():
    with pytest.raises(ConfigError, match="bytes_by_rank: got 3 entries for 8 ranks"):
        cost.all_gather(Topology(2, 4), A2, [1, 2, 3])
    with pytest.raises(ConfigError, match="'tree' is not one of ring, one_level, two_level"):
        cost.all_gather(Topology(2, 4), A2, [1] * 8, "tree")
    with pytest.raises(ConfigError, match="skew .* is 9; with 8 rank.s. it lies from 1 to 8"):
        skewed_share(8, 9)
