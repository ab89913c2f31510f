"""Where the request checks meet SGLang: the one function that every entrance calls."""

from __future__ import annotations

from typing import Any

from sglang_ascend.frontend.limits import Limits
from sglang_ascend.frontend.refusal import RequestRefused
from sglang_ascend.frontend.request_check import check_request, check_token_ids
from sglang_ascend.frontend.wire_types import check_wire_types


def check_before_generating(manager: Any, request: Any, *_: Any, **__: Any) -> None:
    """Before ``TokenizerManager.generate_request(self, obj, request=None)``.

    Runs before SGLang multiplies lists by ``n``, creates any state or tokenises anything.
    """
    check_request(request, Limits.of(manager))
    check_wire_types(request)


def check_before_detokenizing(serving: Any, adapted: Any, *_: Any, **__: Any) -> None:
    """Before ``OpenAIServingDetokenize._handle_non_streaming_request(self, adapted, ...)``."""
    check_token_ids("tokens", adapted.tokens, Limits.of(serving.tokenizer_manager))


def check_prompt_logprobs(manager: Any, request: Any, input_ids: Any) -> None:
    """Before ``TokenizerManager._validate_one_request(self, obj, input_ids)``.

    Positions in the prompt, now that its length in tokens is known.
    """
    if input_ids is None:
        return
    length = len(input_ids)
    start = getattr(request, "logprob_start_len", None)
    if getattr(request, "return_logprob", False) and (start or 0) > length:
        raise RequestRefused(
            f"logprob_start_len = {start} is refused: it must be in [-1, {length}], "
            f"as the prompt has {length} tokens."
        )
    for field in ("multi_item_delimiter_indices", "token_indices_to_pool"):
        indices = getattr(request, field, None) or []
        if any(index >= length for index in indices):
            raise RequestRefused(
                f"{field} = {max(indices)} is refused: it must be in [0, {length - 1}], "
                f"as the prompt has {length} tokens."
            )
