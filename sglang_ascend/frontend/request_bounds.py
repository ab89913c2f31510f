"""Every number that a client sends and SGLang uses as a size or an index, with its bounds.

One table: the check (``request_check``), the page ``docs/request_bounds.md`` and the tests are all
made from it. A field may be a single number, a list of token ids or a mapping whose keys are token
ids; in a batch it may also be a list with one such value per prompt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sglang_ascend.frontend.limits import Limits

Kind = Literal["integer", "number", "ids", "id keys"]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

#: What SGLang 0.5.23 does with a value outside the bounds.
CRASH = "the scheduler process ends, and with it the server"
HANG = "memory or time without end in the HTTP process"
WRONG = "a wrong answer with status 200"
EARLY = "refused with 400, but in a streaming /generate with status 200"
LATE = "refused, but after it reached the scheduler, and in a stream with status 200"
UNSENT = "accepted; HTTP 500 where messages are typed (SGLANG_USE_PICKLE_IPC=0)"


@dataclass(frozen=True)
class Bound:
    """The bounds of one field.

    Attributes:
        field: name in SGLang's request object.
        kind: "integer" and "number" are one value, "ids" a list of integers, "id keys" a mapping
            from integers written as text to numbers.
        lower, upper: inclusive bounds of each integer (of each key for "id keys").
        used_as: what the value becomes.
        today: what SGLang does without this check, out of range.
        openai: names of the same field at the OpenAI-style entrances, "" where there is none.
        values: inclusive bounds of the mapped numbers, for "id keys".
    """

    field: str
    kind: Kind
    lower: Callable[[Limits], float]
    upper: Callable[[Limits], float]
    used_as: str
    today: str
    openai: str = ""
    values: tuple[float, float] | None = None


def _at(value: float) -> Callable[[Limits], float]:
    return lambda limits: value


def _last_token(limits: Limits) -> int:
    return limits.vocab_size - 1


def _context(limits: Limits) -> int:
    return limits.context_len


def _last_position(limits: Limits) -> int:
    return limits.context_len - 1


#: Attributes of ``GenerateReqInput`` and ``EmbeddingReqInput``.
REQUEST_BOUNDS: tuple[Bound, ...] = (
    Bound("input_ids", "ids", _at(0), _last_token,
          "row of the embedding table", CRASH, "prompt, input"),
    Bound("top_logprobs_num", "integer", _at(0), lambda limits: limits.max_top_logprobs,
          "k of a top-k over the vocabulary", CRASH, "logprobs, top_logprobs"),
    Bound("logprob_start_len", "integer", _at(-1), _context,
          "first position with prompt logprobs", LATE),
    Bound("token_ids_logprob", "ids", _at(0), _last_token,
          "column of the logits", EARLY, "label_token_ids"),
    Bound("multi_item_delimiter_indices", "ids", _at(0), _last_position,
          "position in the prompt", CRASH),
    Bound("token_indices_to_pool", "ids", _at(0), _last_position,
          "position in the prompt", CRASH),
    Bound("routed_experts_start_len", "integer", _at(0), _context,
          "first position with returned expert ids", LATE, "routed_experts_start_len"),
    Bound("max_thinking_tokens", "integer", _at(-1), _context,
          "token budget, -1 for none", WRONG, "max_thinking_tokens"),
    Bound("embed_override_token_id", "integer", _at(0), _last_token,
          "token id searched in the prompt", WRONG, "embed_override_token_id"),
    Bound("dimensions", "integer", _at(1), lambda limits: limits.hidden_size,
          "width of the returned vector", EARLY, "dimensions"),
    Bound("priority", "integer", _at(-INT32_MAX), _at(INT32_MAX),
          "sort key, sent between processes as 64 bits", UNSENT, "priority"),
    Bound("bootstrap_port", "integer", _at(0), _at(65535),
          "TCP port of the prefill server", UNSENT, "bootstrap_port"),
    Bound("bootstrap_room", "integer", _at(0), _at(INT64_MAX),
          "key of a KV transfer, 64 bits", UNSENT, "bootstrap_room"),
    Bound("decode_tp_size", "integer", _at(1), _at(INT32_MAX),
          "number of ranks", UNSENT),
    Bound("disagg_prefill_dp_rank", "integer", _at(0), _at(INT32_MAX),
          "rank number", UNSENT, "disagg_prefill_dp_rank"),
)  # fmt: skip

#: Keys of ``sampling_params``.
SAMPLING_BOUNDS: tuple[Bound, ...] = (
    Bound("n", "integer", _at(1), lambda limits: limits.max_samples,
          "factor of every list of the request", HANG, "n"),
    Bound("beam_width", "integer", _at(1), lambda limits: limits.max_samples,
          "number of beams", HANG),
    Bound("max_new_tokens", "integer", _at(0), _at(INT32_MAX),
          "token count; SGLang itself compares it with the context length", EARLY,
          "max_tokens, max_completion_tokens, num_predict"),
    Bound("min_new_tokens", "integer", _at(0), _context,
          "32-bit tensor element", CRASH, "min_tokens"),
    Bound("stop_token_ids", "ids", _at(0), _last_token,
          "scatter index, with min_new_tokens", CRASH, "stop_token_ids"),
    Bound("logit_bias", "id keys", _at(0), _last_token,
          "column of the logits; NaN or infinity spoils the row", WRONG, "logit_bias",
          values=(-1e9, 1e9)),
    Bound("top_k", "integer", _at(-1), _at(1 << 30),
          "32-bit tensor element", CRASH, "top_k"),
    Bound("sampling_seed", "integer", _at(-INT64_MAX), _at(INT64_MAX),
          "64-bit tensor element", EARLY, "seed"),
    Bound("stream_interval", "integer", _at(1), _at(INT32_MAX),
          "tokens per chunk", WRONG),
    Bound("temperature", "number", _at(0.0), _at(1e6),
          "32-bit divisor of the logits; infinity gives NaN", WRONG, "temperature"),
    Bound("top_p", "number", _at(0.0), _at(1.0), "cumulative probability", EARLY, "top_p"),
    Bound("min_p", "number", _at(0.0), _at(1.0),
          "share of the largest probability", EARLY, "min_p"),
    Bound("frequency_penalty", "number", _at(-2.0), _at(2.0),
          "subtracted from logits", EARLY, "frequency_penalty"),
    Bound("presence_penalty", "number", _at(-2.0), _at(2.0),
          "subtracted from logits", EARLY, "presence_penalty"),
    Bound("repetition_penalty", "number", _at(0.0), _at(2.0),
          "divisor of logits", EARLY, "repetition_penalty"),
)  # fmt: skip

#: Keys of ``session_params``.
SESSION_BOUNDS: tuple[Bound, ...] = (
    Bound("offset", "integer", _at(0), _context,
          "slice of the session's tokens", WRONG, "session_params.offset"),
)  # fmt: skip
