"""The two training phases: the main model, then the MTP module against the frozen main model."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.nn import functional
from tqdm import tqdm

from sglang_ascend.models.training.documents import token_stream, windows
from sglang_ascend.models.training.routing import count_load, update_bias

MAIN_PHASE, MTP_PHASE = "main model", "MTP module"
_LENGTH, _LONG_LENGTH = 256, 1024
_WARMUP_STEPS, _CLIP, _DECAY = 30, 1.0, 0.1
_BALANCED = 0.6  # share of a phase in which the correction bias moves, ever more slowly


@dataclass(frozen=True)
class Budget:
    """When a phase ends: after ``minutes``, or after exactly ``steps`` where that is given."""

    minutes: float
    steps: int | None = None

    def progress(self, step: int, started_s: float) -> float:
        """Share of the phase that is done, from 0 to 1."""
        if self.steps is not None:
            return step / self.steps if step < self.steps else 1.0
        return min(1.0, (time.monotonic() - started_s) / (60 * self.minutes))


@dataclass(frozen=True)
class Recipe:
    learning_rate: float
    bias_speed: float
    compile: bool


def batches(
    chapters, tokenizer, rng: random.Random, batch_tokens: int = 4096, long_share: float = 0.08
) -> Iterator[torch.Tensor]:
    """Endless batches of about ``batch_tokens`` tokens, int64 [windows, length + 1].

    ``long_share`` of the text comes in longer windows, so that long prompts stay within what the
    model has seen.
    """
    while True:
        stream = token_stream(chapters, tokenizer, rng)
        cut = int(len(stream) * (1 - long_share))
        epoch = []
        for part, length in ((stream[:cut], _LENGTH), (stream[cut:], _LONG_LENGTH)):
            rows = windows(part, length, rng)
            rows = rows[rng.sample(range(len(rows)), len(rows))]
            size = batch_tokens // length
            epoch += [rows[i : i + size] for i in range(0, len(rows) - size + 1, size)]
        rng.shuffle(epoch)
        yield from epoch


def train_main(main, data: Iterator[torch.Tensor], budget: Budget, recipe: Recipe) -> dict:
    """Next-token cross-entropy; the correction bias is frozen towards the end, as DeepSeek-V3's."""

    def loss_of(tokens: torch.Tensor) -> torch.Tensor:
        hidden = main.model(tokens[:, :-1], use_cache=False).last_hidden_state
        return functional.cross_entropy(
            main.lm_head(hidden).float().flatten(0, 1), tokens[:, 1:].flatten()
        )

    count_load(main)
    return _train(main, loss_of, data, budget, recipe, MAIN_PHASE)


def train_mtp(mtp, main, data: Iterator[torch.Tensor], budget: Budget, recipe: Recipe) -> dict:
    """Distil the main model's own next-token distribution into the MTP module.

    A draft is accepted when it equals what the main model says, so that distribution, and not the
    text, is the target.
    """

    def loss_of(tokens: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            hidden = main.model(tokens, use_cache=False).last_hidden_state
            target = torch.softmax(main.lm_head(hidden[:, 1:]).float(), dim=-1)
            embeddings = main.model.embed_tokens(tokens[:, 1:])
        drafted = main.lm_head(mtp(embeddings, hidden[:, :-1], main.model.rotary_emb))
        return functional.cross_entropy(drafted.float().flatten(0, 1), target.flatten(0, 1))

    main.requires_grad_(False)
    count_load(mtp)
    return _train(mtp, loss_of, data, budget, recipe, MTP_PHASE)


def _train(
    module,
    loss_of: Callable[[torch.Tensor], torch.Tensor],
    data: Iterator[torch.Tensor],
    budget: Budget,
    recipe: Recipe,
    phase: str,
) -> dict:
    """Run a phase; returns what it was: its name, steps, tokens, minutes and last mean loss."""
    optimiser = _optimiser(module, recipe.learning_rate)
    run = torch.compile(loss_of, dynamic=False) if recipe.compile else loss_of
    started_s, step, tokens, average = time.monotonic(), 0, 0, None
    with tqdm(total=100, desc=phase, unit="%", bar_format=_BAR) as bar:
        while (progress := budget.progress(step, started_s)) < 1.0:
            batch = next(data)
            for group in optimiser.param_groups:
                warmup = min(1.0, (step + 1) / _WARMUP_STEPS)
                group["lr"] = recipe.learning_rate * warmup * (1 - progress)
            with torch.autocast("cpu", torch.bfloat16):
                loss = run(batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), _CLIP)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            skews = update_bias(module, recipe.bias_speed * max(0.0, 1 - progress / _BALANCED))
            step, tokens = step + 1, tokens + batch.numel()
            value = loss.item()
            average = value if average is None else 0.95 * average + 0.05 * value
            bar.update(100 * progress - bar.n)
            bar.set_postfix_str(
                f"step {step}, {tokens / 1e6:.2f}M tokens, loss {average:.3f}, skew "
                + "/".join(f"{skew:.2f}" for skew in skews)
            )
        bar.update(100 - bar.n)
    return {
        "phase": phase,
        "learning_rate": recipe.learning_rate,
        "steps": step,
        "tokens": tokens,
        "minutes": round((time.monotonic() - started_s) / 60, 1),
        "loss": average,
    }


_BAR = "{desc}: {percentage:3.0f}% |{bar:20}| {elapsed} {postfix}"


def _optimiser(module, learning_rate: float) -> torch.optim.Optimizer:
    """AdamW; only matrices that multiply hidden states decay."""
    decayed, others = [], []
    for name, parameter in module.named_parameters():
        matrix = parameter.ndim >= 2 and "embed_tokens" not in name
        (decayed if matrix else others).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": _DECAY},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95), fused=True)
