"""Greedy tokens of Hugging Face transformers in float32, the yardstick of exactness."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

#: Two logits closer than this are a tie in float32: a different summation order may swap them.
#: Logits of both models are around 10 to 30, whose float32 spacing is 1e-6 to 2e-6; sums over
#: hundreds of terms and tens of layers add up to a few times that.
TIE = 2e-4


@dataclass(frozen=True)
class Greedy:
    """Greedy continuation: token ids, and the margin between the two best logits of each step."""

    ids: list[int]
    margins: list[float]


class Reference:
    """One model under transformers, with its greedy continuations cached for the session."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.greedy = lru_cache(maxsize=None)(self._greedy)

    @torch.inference_mode()
    def _greedy(self, prompt: str, tokens: int) -> Greedy:
        ids = self.tokenizer(prompt, return_tensors="pt").input_ids
        cache, out, margins = None, [], []
        step = ids
        for _ in range(tokens):
            result = self.model(step, past_key_values=cache, use_cache=True)
            cache = result.past_key_values
            best = result.logits[0, -1].topk(2)
            out.append(int(best.indices[0]))
            margins.append(float(best.values[0] - best.values[1]))
            step = best.indices[:1].view(1, 1)
        return Greedy(out, margins)


def assert_same_tokens(prompt: str, got: list[int], expected: Greedy) -> None:
    """Equal token for token; after a tie of the reference's own logits either way may be taken."""
    for position, (ours, theirs) in enumerate(zip(got, expected.ids, strict=True)):
        if ours == theirs:
            continue
        margin = expected.margins[position]
        assert margin < TIE, (
            f"prompt {prompt[:40]!r}: token {position} is {ours}, transformers says {theirs} "
            f"with a margin of {margin:.2e} (tie threshold {TIE:.0e})"
        )
        return
