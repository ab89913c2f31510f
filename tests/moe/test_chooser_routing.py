"""Routing statistics: a moving average of what all ranks saw, equal on all of them."""

from __future__ import annotations

import pytest
import torch

from sglang_ascend.comm.transport import Where
from sglang_ascend.errors import ConfigError
from sglang_ascend.moe.dispatch.placement import ExpertPlacement
from sglang_ascend.moe.dispatch.routing_statistics import RoutingMonitor, RoutingStatistics

BALANCED = RoutingStatistics(ExpertPlacement(4, 8))


def test_nothing_seen_means_balanced():
    assert BALANCED.skew == 1.0
    assert BALANCED.updated([[0] * 8]).skew == pytest.approx(1.0)


def test_skew_is_the_fullest_rank_over_the_mean_and_a_mean_over_layers():
    # Slots 2 and 3 lie on rank 1: 6 of 8 rows where 2 would be its part.
    one = BALANCED.updated([[0, 1, 3, 3, 0, 1, 0, 0]])
    assert one.skew == pytest.approx(3.0)
    two = BALANCED.updated([[0, 1, 3, 3, 0, 1, 0, 0], [5] * 8])
    assert two.skew == pytest.approx(2.0)


def test_ranks_of_the_shared_expert_have_no_slots_to_be_uneven():
    apart = RoutingStatistics(ExpertPlacement(3, 4, shared_ranks=1))
    assert apart.updated([[3, 3, 1, 1]]).skew == pytest.approx(1.5)


def test_old_counts_fade_and_layers_without_rows_stay():
    first = BALANCED.updated([[8] + [0] * 7, [1] * 8])
    second = first.updated([[0, 8] + [0] * 6, [0] * 8], keep=0.75)
    assert second.load[0] == pytest.approx((0.75, 0.25) + (0,) * 6)
    assert second.load[1] == first.load[1]
    assert first.load[0] == (1.0,) + (0.0,) * 7  # the one before is untouched


@pytest.mark.parametrize("counts", [[[1] * 7], [[1] * 8] * 2, []])
def test_counts_of_another_shape_are_refused(counts):
    with pytest.raises(ConfigError, match="expected 1 layers of 8"):
        BALANCED.updated([[1] * 8]).updated(counts)


def _monitor(group, layers, steps, every):
    """Statistics after each step; rank and step decide what is counted."""
    monitor = RoutingMonitor(group, ExpertPlacement(group.size, 8), layers, every)
    seen = []
    for step in range(steps):
        for layer in range(layers):
            monitor.add(layer, _ids(group.rank, step, layer))
        fresh = monitor.end_step(Where(step, 0, "routing"))
        seen.append((fresh, monitor.statistics.load))
    return seen


def _ids(rank, step, layer):
    generator = torch.Generator().manual_seed(100 * rank + 10 * step + layer)
    return torch.randint(-1, 8, (rank * 3, 2), generator=generator, dtype=torch.int32)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_all_ranks_get_the_sum_of_all_ranks_every_so_many_steps(ranks, world):
    seen = ranks.run(world, _monitor, 2, 5, 2)
    assert all(other == seen[0] for other in seen)
    assert [fresh for fresh, _ in seen[0]] == [False, True, False, True, False]
    expected = RoutingStatistics(ExpertPlacement(world, 8))
    for steps in ((0, 1), (2, 3)):
        counts = [
            sum(
                torch.bincount(ids[ids >= 0], minlength=8)
                for rank in range(world)
                for ids in [_ids(rank, step, layer) for step in steps]
            ).tolist()
            for layer in range(2)
        ]
        expected = expected.updated(counts)
        assert seen[0][steps[1]][1] == expected.load


def test_an_interval_below_one_step_is_refused():
    with pytest.raises(ConfigError, match="shared every 0 steps; give at least 1"):
        RoutingMonitor(None, ExpertPlacement(2, 8), 1, every=0)
