"""The choice: equal on all ranks whatever the counts, explained, and sensible at the extremes."""

from __future__ import annotations

import dataclasses
import inspect
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_ascend.comm.exchange_cost import bf16_shape
from sglang_ascend.comm.hardware import load_hardware
from sglang_ascend.comm.topology import Topology
from sglang_ascend.errors import ConfigError
from sglang_ascend.moe.dispatch import chooser
from sglang_ascend.moe.dispatch.chooser import ChooserState, StepView, choose
from sglang_ascend.moe.dispatch.placement import ExpertPlacement
from sglang_ascend.moe.dispatch.routing_statistics import RoutingStatistics

A2_EP32 = (Topology(4, 8), load_hardware("a2_910b_376t"))
CM384_EP288 = (Topology(18, 8, 2), load_hardware("cm384_910c"))
SMALL = (Topology(2, 2), load_hardware("a2_910b_376t"))
counts_of_four = st.lists(
    st.one_of(st.integers(0, 4), st.integers(0, 100_000)), min_size=4, max_size=4
).map(tuple)


def view(cluster, token_counts, skew=1.0, **changes):
    topology, hardware = cluster
    slots = 288 if topology.world_size == 288 else 256
    placement = ExpertPlacement(topology.world_size, slots)
    routing = RoutingStatistics(placement)
    if skew > 1:
        per_rank = slots // topology.world_size
        hot = [round(1000 * skew)] * per_rank
        cold = [round(1000 * (topology.world_size - skew) / (topology.world_size - 1))]
        routing = routing.updated([hot + cold * (slots - per_rank)])
    shape = bf16_shape(7168, 8, slots, int8_wire=True)
    if isinstance(token_counts, int):
        token_counts = (token_counts,) * topology.world_size
    return StepView(token_counts, topology, shape, routing, hardware, **changes)


def _names(annotation_holder):
    return {field.name for field in dataclasses.fields(annotation_holder)}


def test_nothing_of_a_single_rank_can_enter():
    assert _names(StepView) == {
        "token_counts", "topology", "shape", "routing", "hardware", "dispatch_capacity",
    }  # fmt: skip
    assert _names(ChooserState) == {"transport"}
    assert list(inspect.signature(choose).parameters) == ["view", "state"]
    for holder in (StepView, ChooserState, RoutingStatistics, Topology):
        assert not [name for name in _names(holder) if name in ("rank", "device", "group")]
        assert holder.__dataclass_params__.frozen
    imported = {value.__name__ for value in vars(chooser).values() if inspect.ismodule(value)}
    assert imported <= {"math"}  # no clock, no random numbers, no environment, no process group


@settings(max_examples=40, deadline=None)
@given(
    st.lists(counts_of_four, min_size=1, max_size=6),
    st.lists(st.lists(st.integers(0, 50), min_size=4, max_size=4), min_size=1, max_size=4),
    st.one_of(st.none(), st.integers(0, 512)),
)
def test_all_ranks_choose_alike_at_every_step(steps, loads, capacity):
    """Each rank builds its own view from what is synchronised, and remembers its own state."""
    topology, hardware = SMALL

    def choices_of_a_rank():
        chooser._prediction.cache_clear()
        constants = {key: float(c.value) for key, c in hardware.constants.items()}
        own_hardware = hardware.with_values(constants, "received from the other ranks")
        shape = bf16_shape(7168, 8, 256, int8_wire=True)
        routing = RoutingStatistics(ExpertPlacement(4, 256))
        state, made = ChooserState(), []
        for number, counts in enumerate(steps):
            load = loads[number % len(loads)]
            routing = routing.updated([[rows for rows in load for _ in range(64)]])
            choice = choose(
                StepView(tuple(counts), Topology(2, 2), shape, routing, own_hardware, capacity),
                state,
            )
            state = choice.state
            made.append((choice.transport, choice.predicted_s, choice.reason, state))
        return made

    first = choices_of_a_rank()
    assert all(choices_of_a_rank() == first for _ in range(topology.world_size - 1))


@settings(max_examples=60, deadline=None)
@given(counts_of_four, st.integers(1, 100))
def test_more_tokens_on_all_ranks_never_take_less_time(counts, more):
    longer = tuple(count + more for count in counts)
    before, after = (choose(view(SMALL, c), ChooserState()).predicted_s for c in (counts, longer))
    for transport in before:
        assert after[transport] >= before[transport]


@pytest.mark.parametrize(
    "counts",
    [(0, 0, 0, 0), (1, 0, 0, 0), (0, 0, 0, 100_000), (100_000,) * 4, (300, 1, 1, 1)],
)
def test_extreme_counts_give_a_choice_with_finite_numbers(counts):
    choice = choose(view(SMALL, counts), ChooserState())
    assert choice.transport == min(choice.predicted_s, key=choice.predicted_s.get)
    assert all(0 < seconds < 60 for seconds in choice.predicted_s.values())
    assert f"{sum(counts)} tokens on 4 ranks, at most {max(counts)}" in choice.reason


def test_the_two_published_preferences():
    """AllGather on A2 with 32 cards, Dispatch/Combine on CloudMatrix with 144 cards."""
    for tokens in (16, 64, 96):
        for skew in (1.0, 1.5):
            assert choose(view(A2_EP32, tokens, skew), ChooserState()).transport == "allgather"
            assert choose(view(CM384_EP288, tokens, skew), ChooserState()).transport == "dispatch"


def test_skew_slows_dispatch_and_hardly_allgather():
    balanced, skewed = (
        choose(view(A2_EP32, 64, skew), ChooserState()).predicted_s for skew in (1.0, 2.0)
    )
    assert skewed["dispatch"] > 1.5 * balanced["dispatch"]
    assert skewed["allgather"] < 1.1 * balanced["allgather"]


def test_few_rows_are_uneven_by_chance():
    assert chooser._with_chance(1.0, 32, 4.0) == pytest.approx(1 + 2.07 / 2, abs=0.02)
    assert chooser._with_chance(1.0, 32, 40_000.0) == pytest.approx(1.01, abs=0.001)
    assert chooser._with_chance(3.0, 32, 40.0) == 3.0
    assert chooser._with_chance(1.0, 4, 0.01) == 4.0
    assert chooser._with_chance(1.0, 1, 100.0) == 1.0


@pytest.mark.parametrize("capacity, transport", [(512, "dispatch"), (511, "allgather")])
def test_tokens_over_the_capacity_force_allgather(capacity, transport):
    counts = (2,) * 100 + (512,) + (2,) * 187
    choice = choose(view(CM384_EP288, counts, dispatch_capacity=capacity), ChooserState("dispatch"))
    assert choice.transport == transport
    assert choice.predicted_s["dispatch"] < choice.predicted_s["allgather"]
    # The step after goes on as before.
    assert choice.state == ChooserState("dispatch")
    if transport == "allgather":
        assert choice.reason == (
            "allgather: 512 tokens on rank 100 are more than the 511 a rank that dispatch has "
            "room for"
        )


def _cluster_with_ratio(target):
    """A cluster on which dispatch takes `target` times as long as allgather."""
    topology, hardware = SMALL
    predicted = choose(view(SMALL, 64), ChooserState()).predicted_s
    more_us = (predicted["dispatch"] / target - predicted["allgather"]) * 1e6
    return topology, hardware.with_values({"transport.allgather_overhead": more_us}, "for a test")


@pytest.mark.parametrize(
    "ratio, before, after",
    [
        (0.97, None, "dispatch"),
        (0.97, "allgather", "allgather"),
        (0.93, "allgather", "dispatch"),
        (1.03, "dispatch", "dispatch"),
        (1.07, "dispatch", "allgather"),
    ],
)
def test_a_transport_in_use_stays_for_small_gains(ratio, before, after):
    choice = choose(view(_cluster_with_ratio(ratio), 64), ChooserState(before))
    assert choice.transport == choice.state.transport == after
    kept = re.match(r"(\w+) kept, gain of (3.0|2.9)% is under 5%: ", choice.reason)
    assert (kept[1] if kept else None) == (before if before == after else None)


def test_ranks_of_the_shared_expert_take_their_rows():
    placement = ExpertPlacement(4, 255, shared_ranks=1)
    shape = replace(bf16_shape(7168, 8, 255), shared_rows=1)
    topology, hardware = SMALL
    step = StepView((64,) * 4, topology, shape, RoutingStatistics(placement), hardware)
    apart = choose(step, ChooserState()).predicted_s
    without = StepView((64,) * 4, topology, bf16_shape(7168, 8, 256),
                       RoutingStatistics(ExpertPlacement(4, 256)), hardware)  # fmt: skip
    assert apart["dispatch"] > choose(without, ChooserState()).predicted_s["dispatch"]


def test_views_that_do_not_fit_together_are_refused():
    with pytest.raises(ConfigError, match="expected 4 numbers from 0, one for every rank"):
        view(SMALL, (1, 2, 3))
    with pytest.raises(ConfigError, match=r"token counts \(1, -2, 3, 4\)"):
        view(SMALL, (1, -2, 3, 4))
    good = view(SMALL, 1)
    with pytest.raises(ConfigError, match=r"\(4, 256, False\), topology and shape say \(4, 128"):
        replace(good, shape=bf16_shape(7168, 8, 128))
