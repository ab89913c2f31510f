"""Both transports compute, over real ranks, what one rank would."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from sglang_ascend.comm.topology import LinkClass
from sglang_ascend.errors import ConfigError
from sglang_ascend.moe.dispatch.placement import ExpertPlacement
from sglang_ascend.ops.spec import OperatorError
from tests.moe import dispatch_cases
from tests.moe.dispatch_cases import ROUTINGS, WIDTH, Layer

HOSTILE_COUNTS = [
    (0,),
    (7,),
    (0, 0),
    (0, 5),
    (300, 1),
    (0, 0, 0, 0),
    (0, 3, 0, 1),
    (1, 300, 1, 1),
    (5, 5, 5, 5),
]


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("counts", HOSTILE_COUNTS)
def test_hostile_inputs(ranks, counts, routing):
    ranks.run(len(counts), dispatch_cases.check, Layer(counts, routing))


@pytest.mark.parametrize("top_k", range(1, 9))
def test_every_top_k(ranks, top_k):
    ranks.run(4, dispatch_cases.check, Layer((3, 0, 1, 8), top_k=top_k))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit(ranks, dtype):
    ranks.run(4, dispatch_cases.check, Layer((3, 0, 1, 8), "skewed", dtype=dtype))


@pytest.mark.parametrize(
    ("counts", "shared_ranks"),
    [
        ((2, 3), 1),
        ((0, 3), 1),
        ((4, 0, 2, 1), 1),
        ((1, 2, 3, 4), 2),
        ((0, 0, 0, 5), 2),
        ((1,) * 4, 3),
    ],
)
@pytest.mark.parametrize("routing", ["balanced", "with gaps", "none"])
def test_shared_expert_on_ranks_of_its_own(ranks, counts, shared_ranks, routing):
    layer = Layer(counts, routing, shared_ranks=shared_ranks)
    ranks.run(len(counts), dispatch_cases.check, layer)


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_layer(ranks, data):
    world = data.draw(st.sampled_from([1, 2, 4]))
    layer = Layer(
        counts=tuple(data.draw(st.lists(st.integers(0, 9), min_size=world, max_size=world))),
        routing=data.draw(st.sampled_from(list(ROUTINGS))),
        top_k=data.draw(st.integers(1, 8)),
        slots=data.draw(st.sampled_from([12, 24])),
        shared_ranks=data.draw(st.integers(0, world - 1)),
        seed=data.draw(st.integers(0, 99)),
    )
    ranks.run(world, dispatch_cases.check, layer, data.draw(st.booleans()))


def _rerun(group):
    """Windows are used again and again, with other sizes each time."""
    transport = dispatch_cases.transports(group, Layer((1, 1)))[1]
    for step in range(12):
        layer = Layer((step * 5 % 7, step * 3 % 11), list(ROUTINGS)[step % 5], seed=step)
        out, mine = dispatch_cases.run(transport, layer, step)
        torch.testing.assert_close(out.double(), layer.expected()[mine], rtol=2e-5, atol=2e-5)


def test_many_layers_through_one_transport(ranks):
    ranks.run(2, _rerun)


def _bytes_sent(group, layer):
    """Bytes to other ranks by operation, for each transport."""
    found = []
    for transport in dispatch_cases.transports(group, layer):
        group.ledger.reset()
        dispatch_cases.run(transport, layer)
        found.append(
            {
                operation: traffic.nbytes
                for (operation, link), traffic in group.ledger.snapshot().items()
                if link is not LinkClass.LOCAL
            }
        )
    return found


def test_bytes_on_the_wire(ranks):
    """Two ranks, all tokens of rank 0 to an expert of rank 1 and of rank 1 to itself."""
    layer = Layer((5, 3), "one expert", top_k=2)
    (gather, exact, eager), (gather1, exact1, eager1) = ranks.run(2, _bytes_sent, layer)
    row, routed = WIDTH * 4, 2 * (4 + 4)
    assert gather == {"all_gather": 5 * (row + routed), "reduce_scatter": 3 * row}
    assert gather1 == {"all_gather": 3 * (row + routed), "reduce_scatter": 5 * row}
    counts = 6 * 4
    assert exact == {"dispatch": counts + 5 * row}
    assert exact1 == {"dispatch": counts, "combine": 5 * row}
    # The head takes one row here; behind it there is room for every token's two choices.
    assert eager == {"dispatch": row + 10 * row}
    assert eager1 == {"dispatch": row + 6 * row, "combine": 5 * row}


def _bad_calls(group):
    if group.rank:
        return
    layer = Layer((2, 3))
    for transport in dispatch_cases.transports(group, layer):
        hidden, ids, weights = torch.zeros(2, WIDTH), torch.zeros(2, 3).int(), torch.zeros(2, 3)
        arguments = (hidden, ids, weights)
        with pytest.raises(
            ConfigError, match=r"rank 0 of 2 has 2 tokens, token_counts say \[3, 2\]"
        ):
            transport.run(*arguments, (3, 2), None, None)
        with pytest.raises(ConfigError, match="no rank is for it"):
            transport.run(*arguments, (2, 3), None, None, lambda rows: rows)
    shared = dispatch_cases.transports(group, Layer((2, 3), shared_ranks=1))[0]
    with pytest.raises(ConfigError, match="rank 0 is for the shared expert; run.. was given none"):
        shared.run(*arguments, (2, 3), None, None)
    where = dispatch_cases.Where(0, 0, "")
    for bad, message in (
        (ids + 12, r"ids must be in -1..11, got 12..12"),
        (ids - 2, r"ids must be in -1..11, got -2..-2"),
        (ids, r"a token chose a slot twice: 6 rows for rank 0, 2 tokens can have at most 4"),
    ):
        layer = Layer((2, 3), slots=4 if "twice" in message else 12)
        with pytest.raises(OperatorError, match=message):
            dispatch_cases.transports(group, layer)[1].run(
                hidden, bad, weights, (2, 3), None, where
            )


def test_bad_calls_are_refused_before_anything_is_sent(ranks):
    ranks.run(2, _bad_calls)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, 10), "10 slots do not divide over 4 ranks .4 less 0 .*; 2 redundant slots more would"),
        ((4, 256, 3), None),
        ((4, 256, 1), "256 slots do not divide over 3 ranks .4 less 1 for the shared expert.; 2 "),
        ((2, 8, 2), "2 ranks for the shared expert of 2 ranks leave none .* give at most 1"),
        ((0, 8), "world_size 0 and slots 8 must be at least 1"),
    ],
)
def test_placement_refuses(arguments, message):
    if message is None:
        ExpertPlacement(*arguments)
        return
    with pytest.raises(ConfigError, match=message):
        ExpertPlacement(*arguments)


def test_placement():
    """Slots behind the shared ranks, each on one rank, and every rank served by a shared one."""
    placement = ExpertPlacement(6, 12, 2)
    assert [placement.slot_range(rank) for rank in range(6)] == [
        (0, 0), (0, 0), (0, 3), (3, 6), (6, 9), (9, 12),
    ]  # fmt: skip
    assert [placement.shared_rank_of(rank) for rank in range(6)] == [0, 1, 0, 1, 0, 1]
