"""Tokenizers of the two families that break characters apart, trained here, and real ones."""

from __future__ import annotations

from functools import cache

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from sglang_ascend.models.catalog import resolve

CORPUS = [
    "hello world, the quick brown fox says: STOP! Then it runs.\n",
    "中文字符 日本語のテキスト 한국어 éé àü e\u0301 a\u0308 ﬁ 😀😃👩\u200d👩\u200d👧 🇩🇪",
    'a b中éé {"name": "get_weather", "arguments": {"city": "Zürich"}}',
] * 20
SPECIAL = ["<s>", "</s>", "<|end|>"]


@cache
def byte_level() -> PreTrainedTokenizerFast:
    """GPT-2 style: every byte has a token, merges may end within a character."""
    tokenizer = Tokenizer(models.BPE())
    # No split into words: merges cross them, as in some real vocabularies.
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=520,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=SPECIAL,
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return _wrapped(tokenizer)


@cache
def byte_fallback() -> PreTrainedTokenizerFast:
    """SentencePiece style: words begin with a mark, unknown characters become byte tokens."""
    pieces = ["<unk>", *SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "▁he", "llo", "▁world", "a", "b", "▁a", "▁b", "é", "S", "T", "O", "P", "."]
    tokenizer = Tokenizer(
        models.BPE(
            {piece: i for i, piece in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=True
        )
    )
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return _wrapped(tokenizer)


@cache
def embedded(name: str) -> PreTrainedTokenizerFast:
    """The tokenizer of an embedded model."""
    return AutoTokenizer.from_pretrained(resolve(name))


def _wrapped(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<|end|>"
    )
