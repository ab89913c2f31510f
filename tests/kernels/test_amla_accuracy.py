"""AMLA against ordinary BF16 flash attention, both measured against float64.

The arithmetic is emulated on many cases at a time; that the emulation is the kernel is shown first.
What is compared is what a kernel returns, a bfloat16 number.
"""

from __future__ import annotations

import math

import pytest
import torch

from sglang_ascend.kernel_proof.native_run import native_backend
from sglang_ascend.kernels.mla_decode import mla_attend
from tests.kernels.amla_emulation import ORDERED, exact, flash, ordered_dot
from tests.kernels.attention_cases import mla_case

CASES, PAGES, ROWS, KEYS, DIM = 100, 8, 4, 128, 32
GENERATOR = torch.Generator()


@pytest.mark.parametrize("method", ["amla", "online"])
def test_the_emulation_is_the_native_kernel_bit_for_bit(method):
    case = mla_case(16, [1], [4 * KEYS], padding=0)
    case["scale"] = 1.5  # maxima that jump from page to page
    got = mla_attend(**case, method=method, on=native_backend())[0]
    blocks = case["block_table"][0, :4].long()
    latents = case["latent_cache"][blocks, :, 0].float()
    scores = ordered_scores(case, latents, case["rope_cache"][blocks, :, 0].float())
    emulated = flash(scores, latents, method == "amla", ORDERED).bfloat16()
    assert bool((scores.amax(-1).diff(dim=0) > 1).any())
    assert torch.equal(got, emulated)


def ordered_scores(case, latents, ropes):
    """[pages, rows, keys], with the sum over the three products in the kernel's order."""
    query = torch.cat((case["query_latent"][0], case["query_rope"][0]), -1).float()
    keys = torch.cat((latents, ropes), -1)
    pages = [ordered_dot(query, page.T) for page in keys]
    return torch.stack(pages) * torch.tensor(case["scale"])


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR)


def uniform(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=GENERATOR)


def values(pages: int = PAGES, dim: int = DIM) -> torch.Tensor:
    return normal(CASES, pages, KEYS, dim).bfloat16().float()


def scores() -> torch.Tensor:
    return normal(CASES, PAGES, ROWS, KEYS)


def climb(step: float) -> torch.Tensor:
    """An offset of each page that grows by up to `step` from page to page."""
    return (uniform(CASES, PAGES, ROWS, 1) * step).cumsum(1)


def random_scores():
    return scores() * torch.tensor([1.0, 2.0, 4.0, 8.0]).repeat(25)[:, None, None, None], values()


def maxima_jump_up():
    """By up to 60: past the -30 at which the change of the exponent is cut off."""
    return scores() + climb(60.0), values()


def maxima_fall():
    return scores() - climb(20.0), values()


def one_key_climbs():
    """The largest weight is far above the others, and its key changes in every page."""
    climbing = scores()
    climbing[..., 0] = 6 + climb(1.0)[..., 0]
    return climbing, values()


def maxima_at_half_powers():
    """At odd multiples of ln(2) / 2, where the exponent changes with the last bit of a maximum."""
    half = torch.randint(-20, 20, (CASES, 1, ROWS, 1), generator=GENERATOR) + 0.5
    near = half * math.log(2) + 1e-4 * (uniform(CASES, PAGES, ROWS, 1) - 0.3).cumsum(1)
    return torch.minimum(scores() - 3, torch.tensor(0.0)) + near, values()


def accumulators_untouched():
    """Half the columns stay 0, a quarter for six pages, while the exponent falls by hundreds."""
    sparse = values()
    sparse[..., ::2] = 0
    sparse[:, :6, :, 1::4] = 0
    return scores() + climb(60.0), sparse


def accumulators_cancel():
    """The second page takes away exactly what the first one added."""
    opposite = values()
    opposite[:, 1] = -opposite[:, 0]
    twice = scores()
    twice[:, 1] = twice[:, 0]
    twice[:, 2:] += uniform(CASES, 1, ROWS, 1) * 5
    return twice, opposite


def values_with_a_mean():
    """Rounding errors of the weights average out; those of a common factor would not."""
    return scores(), (values() + 3).bfloat16().float()


def large_offsets():
    return scores() + 1e4 * (uniform(CASES, 1, ROWS, 1) - 0.5), values()


def long_context():
    """64K keys."""
    pages = 65536 // KEYS
    return normal(CASES, pages, 1, KEYS) * 2, values(pages, 4)


KINDS = [
    random_scores,
    maxima_jump_up,
    maxima_fall,
    one_key_climbs,
    maxima_at_half_powers,
    accumulators_untouched,
    accumulators_cancel,
    values_with_a_mean,
    large_offsets,
    long_context,
]


def relative_errors(kind_scores, kind_values) -> tuple[torch.Tensor, torch.Tensor]:
    """Relative error of each case: (AMLA, ordinary flash attention)."""
    want = exact(kind_scores, kind_values).flatten(1)

    def errors(amla: bool) -> torch.Tensor:
        got = flash(kind_scores, kind_values, amla).bfloat16().double().flatten(1)
        assert bool(got.isfinite().all())
        return (got - want).norm(dim=1) / want.norm(dim=1)

    return errors(True), errors(False)


def test_amla_is_as_accurate_as_flash_attention_over_1000_cases():
    ratios, amla_sum, flash_sum = {}, 0.0, 0.0
    for seed, kind in enumerate(KINDS):
        GENERATOR.manual_seed(seed)
        amla, ordinary = relative_errors(*kind())
        ratios[kind.__name__] = float(amla.mean() / ordinary.mean())
        amla_sum, flash_sum = amla_sum + float(amla.sum()), flash_sum + float(ordinary.sum())
    assert len(KINDS) * CASES == 1000
    assert amla_sum <= 1.05 * flash_sum, ratios
    assert max(ratios.values()) <= 1.05, ratios


def test_a_start_value_that_is_set_only_once_comes_back_as_an_ordinary_number():
    """Why the kernel restores it: five jumps of 2^-30 lead round the exponents to below 1e10."""
    bits = torch.full((7,), 2.0**-80).view(torch.int32)
    values = (bits - 30 * torch.arange(7, dtype=torch.int32) * 2**23).view(torch.float32)
    assert float(values[2]) < -1e10 and -1e10 < float(values[5]) < -1e6


def test_scores_that_are_all_alike_are_the_known_limit():
    """Weights just below 1 are where bfloat16 is finest; AMLA moves them by a factor of 2^(+-1/2).

    Ordinary flash attention is then better than it is elsewhere, and AMLA is as good as elsewhere.
    """
    GENERATOR.manual_seed(0)
    amla, ordinary = relative_errors(scores() * 0.01 + climb(0.3), values())
    assert 1.05 < float(amla.mean() / ordinary.mean()) < 1.25
    assert float(amla.mean()) < 2**-8
