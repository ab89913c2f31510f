"""Sampling against SGLang's torch functions, and against the definition."""

import pytest
import sglang  # noqa: F401  (prepares the process for the modules below)
import torch
from sglang.srt.layers import sampler as upstream
from sglang.srt.sampling.sampling_params import TOP_K_ALL

from sglang_ascend.ops.murmur_hash32 import murmur_hash32
from sglang_ascend.ops.sample import _gumbel, sample
from sglang_ascend.ops.sampling_filter import _HEAD, sampling_filter
from sglang_ascend.ops.spec import OperatorError

VOCABULARY = 3000


def _hash_in_python(seed: int, position: int, column: int) -> int:
    """MurmurHash3_x86_32 of four little-endian blocks, hash seed 0, as published."""
    state = 0
    for block in (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF, position & 0xFFFFFFFF, column):
        block = block * 0xCC9E2D51 % 2**32
        block = (block << 15 | block >> 17) % 2**32
        state ^= block * 0x1B873593 % 2**32
        state = (state << 13 | state >> 19) % 2**32
        state = (state * 5 + 0xE6546B64) % 2**32
    state ^= 16
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = (state ^ state >> shift) * factor % 2**32
    return state ^ state >> 16


def test_murmur_hash():
    seeds = [0, 1, 42, 2**31, 2**32 + 7, 2**63 - 1, -1, -(2**63)]
    positions = [0, 1, 5, 131071, 2**31 - 1, 7, 3, 2]
    columns = [0, 1, 17, 129279, 2**31 - 1]
    hashed = murmur_hash32(torch.tensor(seeds), torch.tensor(positions), torch.tensor(columns))
    assert hashed.tolist() == [
        [_hash_in_python(seed % 2**64, position, column) for column in columns]
        for seed, position in zip(seeds, positions)
    ]
    assert torch.equal(
        murmur_hash32(
            torch.tensor(seeds).to(torch.uint64), torch.tensor(positions), torch.tensor(columns)
        ).long(),
        hashed.long(),
    )


def _filter_by_upstream(logits, temperature, top_k, top_p, min_p):
    """SGLang's filtered weights, moved back from sorted order to token order."""
    probabilities = torch.softmax(logits / temperature[:, None], dim=-1)
    _, weights, tokens, _ = upstream.top_k_top_p_min_p_sampling_from_probs_torch(
        probabilities, top_k, top_p, min_p, True, None, None, return_filtered_probs=True
    )
    return torch.zeros_like(weights).scatter_(1, tokens.long(), weights)


def _logits(requests, spread):
    # Distinct values: which of two equal tokens ranks first is not specified.
    order = torch.stack([torch.randperm(VOCABULARY) for _ in range(requests)])
    return order / VOCABULARY * spread


@pytest.mark.parametrize("spread", [2.0, 30.0, 2000.0])
@pytest.mark.parametrize("bounded", [False, True])
def test_filter_is_upstream(spread, bounded):
    torch.manual_seed(0)
    rows = [
        # temperature, top_k, top_p, min_p
        (1.0, 1, 1.0, 0.0),
        (0.7, 50, 1.0, 0.0),
        (1.0, TOP_K_ALL, 0.9, 0.0),
        (1.3, TOP_K_ALL, 0.001, 0.0),
        (1.0, TOP_K_ALL, 1.0, 0.2),
        (0.5, 40, 0.95, 0.05),
        (1.0, _HEAD, 0.5, 0.0),
        (1.0, _HEAD + 1, 0.999, 0.0),
        (1.0, 1, 0.1, 1.0),
    ]
    if bounded:
        rows = [row for row in rows if row[1] <= 50]
    temperature, top_k, top_p, min_p = (torch.tensor(column) for column in zip(*rows))
    logits = _logits(len(rows), spread)
    before = logits.clone()
    weights = sampling_filter(
        logits, temperature, top_k, top_p, min_p, max_top_k=50 if bounded else None
    )
    assert torch.equal(logits, before)
    expected = _filter_by_upstream(logits, temperature, top_k, top_p, min_p)
    # The softmax is the same; cumulative sums of up to 3000 float32 terms may move one boundary
    # token.
    differing = (weights > 0) != (expected > 0)
    assert differing.sum(1).max() <= 1
    torch.testing.assert_close(
        weights.masked_fill(differing, 0), expected.masked_fill(differing, 0), rtol=1e-6, atol=0
    )


def test_no_filter_leaves_the_softmax():
    logits = _logits(2, 5.0)
    ones = torch.ones(2)
    weights = sampling_filter(logits, ones, torch.full((2,), TOP_K_ALL), ones)
    assert torch.equal(weights, logits.softmax(-1))
    weights = sampling_filter(logits, ones, torch.full((2,), VOCABULARY), ones, torch.zeros(2))
    assert torch.equal(weights, logits.softmax(-1))


def test_filtered_and_free_rows_share_a_batch():
    logits = _logits(3, 20.0)
    ones = torch.ones(3)
    top_k = torch.tensor([TOP_K_ALL, 3, TOP_K_ALL])
    top_p = torch.tensor([1.0, 1.0, 0.5])
    weights = sampling_filter(logits, ones, top_k, top_p)
    assert torch.equal(weights[0], logits[0].softmax(-1))
    assert (weights[1] > 0).sum() == 3
    alone = sampling_filter(logits[2:], ones[2:], top_k[2:], top_p[2:])
    assert torch.equal(weights[2], alone[0])


@pytest.mark.parametrize("logits_dtype", [torch.float32, torch.bfloat16])
def test_the_best_token_survives_everything(logits_dtype):
    logits = torch.tensor(
        [[0.0, 5.0, 1.0], [float("-inf"), float("-inf"), 0.0]], dtype=logits_dtype
    )
    ones = torch.ones(2)
    weights = sampling_filter(logits, ones, torch.tensor([1, 1]), ones * 0, ones)
    assert (weights > 0).tolist() == [[False, True, False], [False, False, True]]


def test_ties_keep_exactly_top_k():
    ones = torch.ones(1)
    weights = sampling_filter(torch.zeros(1, 10), ones, torch.tensor([4]), ones)
    assert (weights > 0).sum() == 4


def test_no_request():
    none = torch.zeros(0)
    weights = sampling_filter(
        torch.zeros(0, 7), none, torch.zeros(0, dtype=torch.int32), none, none
    )
    assert weights.shape == (0, 7)
    assert sample(weights).shape == (0,)
    numbers = torch.zeros(0, dtype=torch.int64)
    assert sample(weights, numbers, numbers).shape == (0,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"top_k": torch.tensor([0])}, "top_k must be at least 1, got 0"),
        ({"max_top_k": 3}, "top_k must be at most max_top_k 3, got 4"),
        ({"temperature": torch.tensor([0.0])}, "temperature must be positive, got 0.0"),
    ],
)
def test_wrong_arguments(changes, message):
    ones = torch.ones(1)
    arguments = {"logits": torch.zeros(1, 9), "temperature": ones, "top_k": torch.tensor([4])}
    with pytest.raises(OperatorError, match=f"sampling_filter: {message}"):
        sampling_filter(**{**arguments, "top_p": ones, **changes})


def test_seeded_draw_is_upstream(monkeypatch):
    """SGLang's own hash has kernels for accelerators only; ours is checked above."""
    monkeypatch.setattr(upstream, "murmur_hash32", murmur_hash32.reference)
    torch.manual_seed(0)
    weights = torch.randn(64, 500).softmax(-1)
    seeds = torch.randint(0, 2**62, (64,))
    positions = torch.randint(0, 10000, (64,))
    # SGLang compiles this function, which takes a compiler and half a minute; its arithmetic is the
    # point.
    with torch.compiler.set_stance("force_eager"):
        expected = upstream.sampling_from_probs_torch(weights, seeds, positions)
    assert torch.equal(sample(weights, seeds, positions), expected)


def test_seeded_draw_depends_on_its_own_request_alone():
    torch.manual_seed(0)
    weights = torch.randn(8, 300).softmax(-1)
    # Rows with few weights: the noise must not depend on which tokens the other rows keep.
    weights[1::2] *= torch.rand(4, 300) < 0.05
    weights[:, 7] += 1e-3
    seeds, positions = torch.arange(8), torch.arange(8) * 3
    together = sample(weights, seeds, positions)
    for row in range(8):
        one = slice(row, row + 1)
        assert sample(weights[one], seeds[one], positions[one]) == together[row]
        # Unnormalised weights draw the same token.
        assert sample(weights[one] * 0.25, seeds[one], positions[one]) == together[row]
    assert (
        len(
            set(
                sample(weights[:1].expand(50, -1), torch.arange(50), torch.zeros(50).int()).tolist()
            )
        )
        > 5
    )


def test_noise_is_finite_at_both_ends():
    ends = torch.tensor([0, 1, 0xFFFFFFFE, 0xFFFFFFFF]).to(torch.uint32)
    noise = _gumbel(ends)
    assert noise.isfinite().all() and (noise.diff() >= 0).all()


def _chi_square(counts, probabilities):
    expected = probabilities.double() * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("seeded", [False, True])
def test_distribution(seeded):
    weights = torch.tensor([4.0, 0.0, 1.0, 2.0, 0.0, 3.0])
    draws = 20000
    arguments = {"generator": torch.Generator().manual_seed(1)}
    if seeded:
        arguments = {"seeds": torch.full((draws,), 99), "positions": torch.arange(draws)}
    tokens = sample(weights.expand(draws, -1), **arguments)
    counts = torch.bincount(tokens, minlength=6)
    assert counts[1] == counts[4] == 0
    kept = weights > 0
    # 3 degrees of freedom: 21.1 is exceeded once in 10,000 fixed seeds.
    assert _chi_square(counts[kept].double(), weights[kept] / 10) < 21.1


def test_a_generator_makes_draws_repeatable():
    weights = torch.rand(4, 100)
    draws = [sample(weights, generator=torch.Generator().manual_seed(5)) for _ in range(2)]
    assert torch.equal(*draws)


def test_one_possible_token_is_always_drawn():
    weights = torch.zeros(1000, 5)
    weights[:, 4] = 1e-30
    assert (sample(weights) == 4).all()
    assert (sample(weights, torch.arange(1000), torch.arange(1000)) == 4).all()


def test_seeds_need_positions():
    with pytest.raises(OperatorError, match="seeds and positions are given together or not at all"):
        sample(torch.ones(1, 2), torch.zeros(1, dtype=torch.int64))
