"""Writes ``docs/request_bounds.md``: ``python -m sglang_ascend.frontend.bounds_page``."""

from __future__ import annotations

from sglang_ascend.frontend.limits import Limits
from sglang_ascend.frontend.request_bounds import (
    REQUEST_BOUNDS,
    SAMPLING_BOUNDS,
    SESSION_BOUNDS,
    Bound,
)

#: Limits that no constant equals, so that a bound shows which of them it is made of.
_PROBE = Limits(vocab_size=10_000_019, context_len=20_000_003, hidden_size=30_000_001)
_NAMES = {
    _PROBE.vocab_size - 1: "vocabulary - 1",
    _PROBE.context_len: "context",
    _PROBE.context_len - 1: "context - 1",
    _PROBE.hidden_size: "hidden size",
    2**31 - 1: "2^31 - 1",
    -(2**31) + 1: "-2^31 + 1",
    2**63 - 1: "2^63 - 1",
    -(2**63) + 1: "-2^63 + 1",
    1 << 30: "2^30",
}

_HEAD = """\
# Bounds of what a client may ask for

A number that SGLang uses as a size or an index is refused with status 400 before it reaches a
scheduler. The answer names the field, the value and the limit. One bad prompt refuses its batch;
other requests are not touched. The tables are made from `sglang_ascend/frontend/request_bounds.py`
by `python -m sglang_ascend.frontend.bounds_page`.

"vocabulary" is the number of rows of the embedding table, "context" the model's context length.

## Where they are checked

All entrances make a `GenerateReqInput` or `EmbeddingReqInput` and hand it to
`TokenizerManager.generate_request`: `/generate`, `/encode`, `/classify`, `/v1/completions`,
`/v1/chat/completions`, `/v1/responses`, `/v1/embeddings`, `/v1/classify`, `/v1/score`,
`/v1/rerank`, `/v1/decisions`, `/v1/messages`, `/api/chat`, `/api/generate`,
`/v1/audio/transcriptions`, `/invocations` and the Vertex route. They are checked there, before
SGLang repeats a list `n` times or tokenises anything. Positions in the prompt are compared with its
length once that is known. `/detokenize` and `/v1/detokenize` are checked on their own.
A streaming request gets its 400 as well, not a 200 with an error event.

Besides: parameters have the types that SGLang declares for its messages, and names that exist and
are not internal ones; lists have one entry per prompt; given embeddings have the model's
width and finite entries; prompts times `n` are at most 65536.
"""

_FOOT = """\
## Accepted and not used

`best_of` of `/v1/completions` is read by nothing in SGLang 0.5.23.

## Bounded by SGLang itself

Prompt length and `max_new_tokens` against the context length; `routed_dp_rank` against the number
of ranks; stop strings (32) and stop patterns (32, of 256 bytes); `label_token_ids` and
`temperature` of `/v1/score`; `top_n` of `/v1/rerank`; watermark keys.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for title, table in (
        ("Fields of a request", REQUEST_BOUNDS),
        ("Fields of `sampling_params`", SAMPLING_BOUNDS),
        ("Fields of `session_params`", SESSION_BOUNDS),
    ):
        rows = [
            "| field | elsewhere called | is | lower | upper | used as | out of range in SGLang |",
            "|---|---|---|---|---|---|---|",
            *map(_row, table),
        ]
        parts.append(f"## {title}\n\n" + "\n".join(rows) + "\n")
    return "\n".join([*parts, _FOOT])


def _row(bound: Bound) -> str:
    other = "" if bound.openai == bound.field else bound.openai
    kind = {
        "integer": "an integer",
        "number": "a finite number",
        "ids": "integers",
        "id keys": "integers to numbers",
    }[bound.kind]
    if bound.values is not None:
        kind += f" in [{bound.values[0]:g}, {bound.values[1]:g}]"
    cells = (
        f"`{bound.field}`",
        other,
        kind,
        _text(bound.lower(_PROBE)),
        _text(bound.upper(_PROBE)),
        bound.used_as,
        bound.today,
    )
    return "| " + " | ".join(cells) + " |"


def _text(number: float) -> str:
    return _NAMES.get(number) or f"{number:g}"


if __name__ == "__main__":
    print(page(), end="")
