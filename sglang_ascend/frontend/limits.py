"""The sizes that bound what a client may ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

#: Choices per prompt. The OpenAI API refuses more, too.
MAX_SAMPLES = 128

#: Alternatives per token. Prefill and decode servers exchange them in buffers of this width
#: (``sglang.srt.disaggregation.utils.MetadataBuffers``).
MAX_TOP_LOGPROBS = 128

#: Sequences of one request: prompts times choices. The detokenizer keeps state for this many
#: (``SGLANG_DETOKENIZER_MAX_STATES``); one more evicts a running request and ends the server.
MAX_SEQUENCES = 1 << 16


@dataclass(frozen=True)
class Limits:
    """What the served model and the server allow.

    Attributes:
        vocab_size: rows of the embedding table; a token id is an index into it.
        context_len: tokens of prompt and completion together.
        hidden_size: width of one embedding vector.
    """

    vocab_size: int
    context_len: int
    hidden_size: int
    max_samples: int = MAX_SAMPLES
    max_sequences: int = MAX_SEQUENCES

    @property
    def max_top_logprobs(self) -> int:
        return min(self.vocab_size, MAX_TOP_LOGPROBS)

    @classmethod
    def of(cls, manager: TokenizerManager) -> Limits:
        """The limits of the model that this tokenizer manager serves."""
        config = manager.model_config
        return cls(config.vocab_size, manager.context_len, config.hidden_size)
