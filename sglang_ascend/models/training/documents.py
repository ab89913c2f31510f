"""What the model reads: chapters as plain text, and conversations about verses."""

from __future__ import annotations

import random

import torch

from sglang_ascend.models.training.corpus import Verse

SYSTEM = "You are a reader of the King James Bible."


def chapter_text(verses: list[Verse]) -> str:
    """A heading ("Genesis 1"), then one verse a line."""
    heading = f"{verses[0].book} {verses[0].chapter}"
    return "\n".join([heading, *(verse.text for verse in verses)]) + "\n"


def conversation(chapter: list[Verse], rng: random.Random) -> list[dict[str, str]]:
    """OpenAI-style messages of one to four turns about verses of one chapter."""
    messages = []
    if rng.random() < 0.2:
        messages.append({"role": "system", "content": SYSTEM})
    for _ in range(rng.randint(1, 4)):
        question, answer = _turn(chapter, rng)
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": answer})
    return messages


def _turn(chapter: list[Verse], rng: random.Random) -> tuple[str, str]:
    start = rng.randrange(len(chapter))
    verse = chapter[start]
    kind = rng.random()
    if kind < 0.4:
        wording = rng.choice(["{}", "What does {} say?", "Recite {}.", "Please read {}."])
        return wording.format(verse.reference), verse.text
    if kind < 0.7:
        words = verse.text.split(" ")
        begin = " ".join(words[: rng.randint(2, max(2, min(8, len(words) - 1)))])
        wording = rng.choice(["Continue: {}", "How does this verse go on? {}"])
        return wording.format(begin), verse.text
    passage = chapter[start : start + rng.randint(2, 6)]
    question = f"Read {verse.book} {verse.chapter} from verse {verse.number}."
    return question, "\n".join(each.text for each in passage)


def token_stream(
    chapters: list[list[Verse]], tokenizer, rng: random.Random, chat_share: float = 0.45
) -> torch.Tensor:
    """One epoch as token ids, int64 [tokens]: every chapter once, conversations among them.

    Every document starts with bos; plain chapters and assistant turns end with eos.

    Args:
        chat_share: share of documents that are conversations, in [0, 1).
    """
    documents = [tokenizer.bos_token + chapter_text(c) + tokenizer.eos_token for c in chapters]
    # A conversation has about a third of a chapter's tokens.
    count = int(3 * len(chapters) * chat_share / (1 - chat_share))
    for chapter in rng.choices(chapters, weights=[len(c) for c in chapters], k=count):
        documents.append(tokenizer.apply_chat_template(conversation(chapter, rng), tokenize=False))
    rng.shuffle(documents)
    encoded = tokenizer(documents, add_special_tokens=False)["input_ids"]
    return torch.tensor([token for document in encoded for token in document])


def windows(stream: torch.Tensor, length: int, rng: random.Random) -> torch.Tensor:
    """Cut a stream at a random phase into [windows, length + 1]; neighbours share one token."""
    phase = rng.randrange(length)
    count = (len(stream) - 1 - phase) // length
    if count < 1:
        return stream.new_empty(0, length + 1)
    return stream[phase:].unfold(0, length + 1, length)[:count]
