"""Time attention of the reference device: seconds of a multiply-add, in decode and in prefill."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
import torch.nn.functional as F

from sglang_ascend.ops.mla_prefill_expanded import mla_prefill_expanded
from sglang_ascend.ops.paged_gqa_attention import paged_gqa_attention
from sglang_ascend.ops.paged_mla_attention import paged_mla_attention
from sglang_ascend.planner.calibration import rates
from sglang_ascend.planner.calibration.timing import per_call

#: Heads and dimensions of a small model of each kind; cache pages of one token, as served.
_HEADS, _KV_HEADS, _DIM = 8, 2, 64
_LATENT, _ROPE, _VALUE = 512, 64, 32
#: Caches that take turns: layers of a model each have their own.
_CACHES = 16
_CONTEXT = 256
_PROMPTS, _PROMPT = 16, 128


def timed() -> dict[str, Callable[[], float]]:
    """Runs that give the figures ``attention/...`` of ``rates.Rates``."""
    found = {}
    for requests in rates.REQUESTS:
        lens = [1] * requests, [_CONTEXT] * requests
        found[f"attention/gqa/decode/{requests}"] = _gqa(*lens)
        found[f"attention/mla/decode/{requests}"] = _mla_absorbed(*lens)
    lens = [_PROMPT] * _PROMPTS, [_PROMPT] * _PROMPTS
    found["attention/gqa/prefill"] = _gqa(*lens)
    found["attention/mla/prefill"] = _mla_expanded(*lens)
    return found


def _gqa(query_lens: list[int], kv_lens: list[int]) -> Callable[[], float]:
    table, slots = _block_table(kv_lens)
    query = torch.randn(sum(query_lens), _HEADS, _DIM)
    caches = [torch.randn(2, slots, 1, _KV_HEADS, _DIM) for _ in range(_CACHES)]

    def run(cache: torch.Tensor) -> None:
        paged_gqa_attention(query, cache[0], cache[1], table, query_lens, kv_lens, _DIM**-0.5)

    return _per_multiply_add(run, caches, _pairs(query_lens, kv_lens) * _HEADS * 2 * _DIM)


def _mla_absorbed(query_lens: list[int], kv_lens: list[int]) -> Callable[[], float]:
    table, slots = _block_table(kv_lens)
    query = torch.randn(sum(query_lens), _HEADS, _LATENT)
    query_rope = torch.randn(sum(query_lens), _HEADS, _ROPE)
    caches = [_latents(slots) for _ in range(_CACHES)]

    def run(cache: tuple[torch.Tensor, torch.Tensor]) -> None:
        paged_mla_attention(query, query_rope, *cache, table, query_lens, kv_lens, 0.1)

    work = _pairs(query_lens, kv_lens) * _HEADS * (2 * _LATENT + _ROPE)
    return _per_multiply_add(run, caches, work)


def _mla_expanded(query_lens: list[int], kv_lens: list[int]) -> Callable[[], float]:
    """Without the expansion from latents, which the planner prices as a product."""
    table, slots = _block_table(kv_lens)
    tokens = sum(query_lens)
    query, query_rope = torch.randn(tokens, _HEADS, _VALUE), torch.randn(tokens, _HEADS, _ROPE)
    up_keys = torch.randn(_HEADS, _VALUE, _LATENT)
    up_values = torch.randn(_HEADS, _LATENT, _VALUE)
    latents, expand = torch.randn(tokens, _LATENT), torch.randn(2 * _HEADS * _VALUE, _LATENT)
    caches = [_latents(slots) for _ in range(_CACHES)]

    def run(cache: tuple[torch.Tensor, torch.Tensor]) -> None:
        mla_prefill_expanded(
            query, query_rope, *cache, table, query_lens, kv_lens, up_keys, up_values, 0.1
        )

    work = _pairs(query_lens, kv_lens) * _HEADS * (2 * _VALUE + _ROPE)
    whole = _per_multiply_add(run, caches, work)
    product = _per_multiply_add(lambda _: F.linear(latents, expand), caches, work)
    return lambda: max(0.0, whole() - product())


def _latents(slots: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(slots, 1, 1, _LATENT), torch.randn(slots, 1, 1, _ROPE)


def _block_table(kv_lens: list[int]) -> tuple[torch.Tensor, int]:
    """Pages of one token, one request after the other; and how many there are."""
    slots = sum(kv_lens)
    return torch.arange(slots, dtype=torch.int32).view(len(kv_lens), -1), slots


def _pairs(query_lens: list[int], kv_lens: list[int]) -> float:
    """Of query and visible key, under a causal mask."""
    return sum(n * (kv - (n - 1) / 2) for n, kv in zip(query_lens, kv_lens))


def _per_multiply_add(run: Callable, caches: list, work: float) -> Callable[[], float]:
    turns = itertools.cycle(caches)
    return lambda: per_call(lambda: run(next(turns))) / work
