"""What the model card reports, computed on the published checkpoint in float32."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn import functional

from sglang_ascend.models.training.layout import load_mtp
from sglang_ascend.models.training.routing import count_load, gates

HELDOUT = "heldout.txt"


class Reading(NamedTuple):
    """One held-out chapter of n tokens, as both models read it."""

    text: str
    ids: torch.Tensor  # int64 [1, n], bos first
    logits: torch.Tensor  # float32 [1, n, vocabulary], of the main model
    drafts: torch.Tensor  # int64 [1, n - 1], the MTP module's first choices for tokens 2 .. n


class Checkpoint:
    """The published folder: ``main`` and ``tokenizer`` by transformers, ``mtp`` by our module."""

    def __init__(self, folder: Path):
        from transformers import AutoTokenizer, DeepseekV3ForCausalLM

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.main = DeepseekV3ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.mtp = load_mtp(folder, self.main.config)
        self.chapters = chapters_of((folder / HELDOUT).read_text())
        self.routers = gates(self.main) + gates(self.mtp)
        count_load(self.main)
        count_load(self.mtp)

    @torch.no_grad()
    def read(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(logits, drafts) for token ids [1, n], shaped as in :class:`Reading`."""
        hidden = self.main.model(ids, use_cache=False).last_hidden_state
        mask = torch.full((ids.shape[1] - 1,) * 2, float("-inf")).triu(1)
        embeddings = self.main.model.embed_tokens(ids[:, 1:])
        drafted = self.mtp(embeddings, hidden[:, :-1], self.main.model.rotary_emb, mask)
        return self.main.lm_head(hidden), self.main.lm_head(drafted).argmax(-1)

    @cached_property
    def held_out(self) -> tuple[list[Reading], list[torch.Tensor]]:
        """The held-out chapters, and each router's tokens by expert on them, int64 [experts]."""
        for router in self.routers:
            router.expert_load.zero_()
        readings = []
        for text in self.chapters:
            ids = self.tokenizer(text, return_tensors="pt")["input_ids"]
            readings.append(Reading(text, ids, *self.read(ids)))
        return readings, [router.expert_load.clone() for router in self.routers]


def chapters_of(text: str) -> list[str]:
    """The chapters of the held-out file, which blank lines separate."""
    return [part.strip("\n") + "\n" for part in text.split("\n\n")]


def held_out_perplexity(checkpoint: Checkpoint) -> dict[str, float]:
    """exp of the mean negative log-likelihood in nats, per token, byte and word."""
    readings, _ = checkpoint.held_out
    nats = sum(
        functional.cross_entropy(r.logits[0, :-1], r.ids[0, 1:], reduction="sum").item()
        for r in readings
    )
    tokens = sum(r.ids.shape[1] - 1 for r in readings)
    size = sum(len(r.text.encode()) for r in readings)
    words = sum(len(r.text.split()) for r in readings)
    return {
        "tokens": tokens,
        "bytes": size,
        "words": words,
        "perplexity_per_token": math.exp(nats / tokens),
        "perplexity_per_byte": math.exp(nats / size),
        "bits_per_byte": nats / size / math.log(2),
        "perplexity_per_word": math.exp(nats / words),
    }


def expert_load(checkpoint: Checkpoint) -> dict[str, dict]:
    """Tokens of each expert on the held-out text, and max and min over mean, by layer."""
    first = checkpoint.main.config.first_k_dense_replace
    return {
        f"layer_{layer}": {
            "max_over_mean": (load.max() / load.float().mean()).item(),
            "min_over_mean": (load.min() / load.float().mean()).item(),
            "tokens": load.tolist(),
        }
        for layer, load in enumerate(checkpoint.held_out[1], start=first)
    }


def agreement_on_text(checkpoint: Checkpoint) -> float:
    """Share of held-out positions where the draft is the main model's own first choice."""
    equal = [r.drafts == r.logits[:, 1:].argmax(-1) for r in checkpoint.held_out[0]]
    return torch.cat(equal, dim=1).float().mean().item()


def agreement_on_greedy(checkpoint: Checkpoint, prompts: list[str], new_tokens: int) -> float:
    """The same over the main model's own greedy continuations of ``prompts``.

    Args:
        prompts: texts with their special tokens written out.
        new_tokens: longest continuation; it ends at eos.
    """
    equal = []
    for prompt, answer in zip(prompts, continuations(checkpoint, prompts, new_tokens), strict=True):
        start = len(checkpoint.tokenizer(prompt, add_special_tokens=False)["input_ids"])
        ids = torch.tensor([answer])
        _, drafted = checkpoint.read(ids)
        # Draft i is for token i + 2: the first token after the prompt has none.
        equal.append(drafted[0, start - 1 : -1] == ids[0, start + 1 :])
    return torch.cat(equal).float().mean().item()


@torch.no_grad()
def continuations(checkpoint: Checkpoint, prompts: list[str], new_tokens: int) -> list[list[int]]:
    """Greedy token ids, prompt and continuation up to eos, one list a prompt."""
    batch = checkpoint.tokenizer(
        prompts, return_tensors="pt", add_special_tokens=False, padding=True, padding_side="left"
    )
    output = checkpoint.main.generate(**batch, max_new_tokens=new_tokens, do_sample=False)
    width, eos = batch["input_ids"].shape[1], checkpoint.tokenizer.eos_token_id
    rows = []
    for row, mask in zip(output.tolist(), batch["attention_mask"], strict=True):
        answer = row[width:]
        if eos in answer:
            answer = answer[: answer.index(eos) + 1]
        rows.append(row[width - int(mask.sum()) : width] + answer)
    return rows


def greedy_prompts(checkpoint: Checkpoint, count: int = 48) -> list[str]:
    """Half chats about, half plain beginnings of, held-out verses."""
    verses = [verse for chapter in checkpoint.chapters for verse in chapter.splitlines()[1:]]
    prompts = []
    for index in range(count):
        begin = " ".join(verses[index * len(verses) // count].split()[:6])
        if index % 2:
            prompts.append(checkpoint.tokenizer.bos_token + begin)
            continue
        messages = [{"role": "user", "content": f"Continue: {begin}"}]
        prompts.append(
            checkpoint.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        )
    return prompts
