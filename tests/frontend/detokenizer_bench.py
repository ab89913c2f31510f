"""SGLang's detokenizer without its process: only what its decoding reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

from sglang.srt.managers.detokenizer_manager import DetokenizerManager, LimitedCapacityDict

UPSTREAM = DetokenizerManager._decode_batch_token_id_output


def manager(tokenizer, capacity: int = 1024) -> DetokenizerManager:
    one = DetokenizerManager.__new__(DetokenizerManager)
    one.tokenizer = tokenizer
    one.vocab_size = len(tokenizer)
    one.decode_status = LimitedCapacityDict(capacity)
    one.disable_tokenizer_batch_decode = False
    one.is_tool_call_parser_gpt_oss = False
    one.tool_close_token_ids = set()
    return one


def message(rid, ids, offset=0, reason=None, no_stop_trim=False, skip_special=True):
    """A ``BatchTokenIDOutput`` with the fields that decoding reads, for one request."""
    return SimpleNamespace(
        rids=[rid],
        decode_ids=[list(ids)],
        decoded_texts=[""],
        read_offsets=[offset],
        finished_reasons=[reason],
        no_stop_trim=[no_stop_trim],
        skip_special_tokens=[skip_special],
        spaces_between_special_tokens=[True],
    )


def stream(
    decode: Callable, tokenizer, pieces: Sequence[Sequence[int]], reason: dict, context=(), **flags
) -> list[str]:
    """The texts that a request gives whose tokens arrive in these pieces, the last one final."""
    one = manager(tokenizer)
    texts = []
    for i, piece in enumerate(pieces):
        ids = [*context, *piece] if i == 0 else piece
        last = i == len(pieces) - 1
        batch = message("r", ids, len(context), reason if last else None, **flags)
        texts += decode(one, batch)
    assert not one.decode_status
    return texts
