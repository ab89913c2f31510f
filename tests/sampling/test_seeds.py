"""Seeds: reproducible, independent of the batch, and absent where nobody gave one."""

from __future__ import annotations

import torch

from sglang_ascend.sampling import sampler, seeds

PROBS = torch.rand(6, 50, generator=torch.Generator().manual_seed(1)).softmax(-1)
POSITIONS = torch.arange(6)


def draw(rows, given):
    return sampler.from_probabilities(PROBS[rows], torch.tensor(given), POSITIONS[rows])


def test_a_seeded_row_draws_alike_in_any_batch():
    alone = draw([2], [7])
    for _ in range(5):
        mixed = draw([0, 2, 5], [seeds.NO_SEED, 7, 9])
        assert mixed[1] == alone[0]


def test_unseeded_rows_vary_beside_a_seeded_one():
    firsts = {int(draw([0, 2], [seeds.NO_SEED, 7])[0]) for _ in range(40)}
    assert len(firsts) > 3


def test_nobody_gave_a_seed():
    assert seeds.resolve(torch.tensor([seeds.NO_SEED] * 3)) is None
    assert seeds.resolve(None) is None


def test_seed_zero_is_a_seed():
    assert seeds.resolve(torch.tensor([0, seeds.NO_SEED]))[0] == 0


def test_filters_with_a_seed_and_min_p():
    rows = len(PROBS)
    tokens = sampler.filtered(
        None,
        PROBS.clone(),
        torch.full((rows,), 4, dtype=torch.int32),
        torch.full((rows,), 0.9),
        torch.full((rows,), 0.05),
        True,
        torch.arange(rows),
        POSITIONS,
        max_top_k=4,
    )
    best = PROBS.topk(4, dim=-1).indices
    assert all(int(token) in row.tolist() for token, row in zip(tokens, best))
