"""How calls are cut into tasks: every row and key once, whole pages, enough tasks."""

from __future__ import annotations

import random

import torch

from sglang_ascend.kernels.attention_plan import LEAST_PAGES, plan_attention, tile_count

CPU = torch.device("cpu")
PAGE = 128


def test_every_row_meets_every_key_that_it_sees_in_one_task():
    rng = random.Random(0)
    for _ in range(60):
        requests = rng.randrange(1, 6)
        query_lens = [rng.randrange(0, 5) for _ in range(requests)]
        kv_lens = [length + rng.randrange(0, 3000) for length in query_lens]
        rows_per_token, rows_per_tile = rng.choice([1, 3, 16]), rng.choice([16, 32])
        programs = rng.choice([0, 4, 20])
        arguments = (query_lens, kv_lens, rows_per_token, rows_per_tile, programs, PAGE, CPU)
        plan = plan_attention(*arguments)
        rows = sum(query_lens) * rows_per_token
        assert plan.visible.shape == (rows,)
        covered = torch.zeros(rows, max(kv_lens, default=0) + 1, dtype=torch.int32)
        for slot, (request, first, count, begin, end, at, *_) in enumerate(plan.tasks.tolist()):
            assert at == slot and begin % PAGE == 0 and begin < end and 1 <= count <= rows_per_tile
            start = sum(query_lens[:request]) * rows_per_token
            assert start <= first and first + count <= start + query_lens[request] * rows_per_token
            assert int(plan.visible[first : first + count].min()) > begin
            covered[first : first + count, begin:end] += 1
        assert not bool((covered > 1).any())
        for row, seen in enumerate(plan.visible.tolist()):
            assert bool((covered[row, :seen] == 1).all())
        assert plan.tiles.shape[0] == tile_count(query_lens, rows_per_token, rows_per_tile)
        assert plan.split == (plan.slots > plan.tiles.shape[0])
        assert plan.tiles[:, 1].sum() == plan.slots


def test_queries_see_one_key_more_from_one_to_the_next():
    plan = plan_attention([3, 0, 1], [10, 4, 7], 2, 16, 0, PAGE, CPU)
    assert plan.visible.tolist() == [8, 8, 9, 9, 10, 10, 7, 7]
    whole = plan_attention([3, 0, 1], [10, 4, 7], 2, 16, 0, PAGE, CPU, causal=False)
    assert whole.visible.tolist() == [10] * 6 + [7, 7]


def test_a_tile_stops_at_the_last_key_that_one_of_its_rows_sees():
    plan = plan_attention([4], [400], 8, 16, 0, PAGE, CPU)
    assert plan.tasks[:, 4].tolist() == [398, 400]


def test_a_long_context_is_cut_for_the_cores_and_a_short_one_is_not():
    long = plan_attention([1], [65536], 16, 16, 20, PAGE, CPU)
    assert long.slots == 20 and long.split
    pages = (long.tasks[:, 4] - long.tasks[:, 3]) // PAGE
    assert int(pages.max() - pages.min()) <= 1
    short = plan_attention([1], [LEAST_PAGES * PAGE], 16, 16, 20, PAGE, CPU)
    assert short.slots == 1 and not short.split
    full = plan_attention([1] * 40, [4096] * 40, 16, 16, 20, PAGE, CPU)
    assert full.slots == 40


def test_a_call_without_requests_or_queries_is_empty():
    for lens in ([], [0, 0]):
        plan = plan_attention(lens, [5] * len(lens), 16, 16, 20, PAGE, CPU)
        assert plan.tasks.shape == (0, 8) and plan.tiles.shape == (0, 4) and not plan.split
