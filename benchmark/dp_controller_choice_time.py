"""CPU time of a choice, over ranks and prompt length."""

from __future__ import annotations

import statistics
import time
from array import array

from sglang_ascend.dp_controller import block_hashes
from sglang_ascend.dp_controller.router import Request, Router
from sglang_ascend.dp_controller.settings import PolicySettings

RANKS = (2, 8, 32, 144)
PROMPT_TOKENS = (1024, 12_288, 131_072)
_REPEATS = 60
_BLOCK_TOKENS = 128


def measure() -> list[dict[str, float]]:
    """Medians in microseconds: hashing a prompt, and the choice with its bookkeeping.

    Every prompt shares its first half with another that some rank has had before.
    """
    rows = []
    for ranks in RANKS:
        for tokens in PROMPT_TOKENS:
            hash_s, route_s = _time(ranks, tokens)
            rows.append(
                {
                    "ranks": ranks,
                    "prompt_tokens": tokens,
                    "hash_us": statistics.median(hash_s) * 1e6,
                    "choice_us": statistics.median(route_s) * 1e6,
                }
            )
    return rows


def _time(ranks: int, tokens: int) -> tuple[list[float], list[float]]:
    router = Router(ranks, _BLOCK_TOKENS, PolicySettings())
    live = list(range(ranks))
    hash_s, route_s = [], []
    for number in range(_REPEATS):
        half = tokens // 2
        prompt = array("q", [number % 7]) * half + array("q", [-number]) * (tokens - half)
        began = time.thread_time()
        chain = block_hashes.chain(prompt, _BLOCK_TOKENS)
        hashed = time.thread_time()
        router.route(Request(f"{number}", tokens, chain, 512), live, now_s=number)
        hash_s.append(hashed - began)
        route_s.append(time.thread_time() - hashed)
    return hash_s, route_s


def table(rows: list[dict[str, float]]) -> str:
    """The rows as text."""
    head = f"{'ranks':>6}{'prompt tokens':>15}{'hashing':>12}{'choice':>12}"
    lines = [head, "-" * len(head)]
    for row in rows:
        lines.append(
            f"{row['ranks']:>6}{row['prompt_tokens']:>15}{row['hash_us']:>9.0f} us"
            f"{row['choice_us']:>9.0f} us"
        )
    return "\n".join(lines)
