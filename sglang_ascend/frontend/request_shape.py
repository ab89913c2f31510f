"""Check that the lists of one request fit each other, the model and the server."""

from __future__ import annotations

from typing import Any

from sglang_ascend.frontend.limits import Limits
from sglang_ascend.frontend.refusal import RequestRefused, is_number, shown

#: Fields that may hold one value for the request or a list with one value per prompt.
_PER_PROMPT = (
    "sampling_params",
    "return_logprob",
    "logprob_start_len",
    "top_logprobs_num",
    "return_sampling_mask",
    "sampling_logprobs_mode",
    "custom_logit_processor",
    "lora_path",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "bootstrap_pair_key",
    "decode_tp_size",
)

#: Fields that hold a list for one prompt and a list of lists for a batch; whether a batch may also
#: share one list.
_ID_LISTS = {
    "token_ids_logprob": True,
    "multi_item_delimiter_indices": False,
    "token_indices_to_pool": False,
}


def check_shape(request: Any, limits: Limits) -> None:
    """Refuse lists of the wrong length, vectors of the wrong width and too many sequences.

    Args:
        request: a ``GenerateReqInput`` or ``EmbeddingReqInput``, not yet normalised, whose
            sampling parameters are in bounds.

    Raises:
        RequestRefused: naming the field, what it has and what fits.
    """
    embeds = getattr(request, "input_embeds", None)
    if embeds is not None:
        _check_vectors("input_embeds", embeds, limits.hidden_size)
    prompts = _prompts(request)
    params = request.sampling_params
    first = params[0] if isinstance(params, list) and params else params
    samples = (first or {}).get("n") or 1
    # One prompt with several samples becomes a batch of one.
    expected = 1 if prompts is None and samples > 1 else prompts
    for field in _PER_PROMPT:
        value = getattr(request, field, None)
        if isinstance(value, list):
            _check_length(field, value, expected)
    for field, shared in _ID_LISTS.items():
        value = getattr(request, field, None)
        if isinstance(value, list) and value:
            nested = any(isinstance(item, list) for item in value)
            if nested or not (shared or expected is None):
                _check_length(field, value if nested else [], expected)
    if (prompts or 1) * samples > limits.max_sequences:
        raise RequestRefused(
            f"{prompts} prompts with n = {samples} are refused: "
            f"one request may have at most {limits.max_sequences} sequences; send several."
        )


def _check_length(field: str, value: list, expected: int | None) -> None:
    if len(value) != expected:
        fits = "no list per prompt" if expected is None else f"{expected}, one per prompt"
        raise RequestRefused(
            f"{field} has {len(value)} entries for prompts and is refused: it must have {fits}."
        )


def _prompts(request: Any) -> int | None:
    """Number of prompts of a batch, or None for a single prompt."""
    text, ids = getattr(request, "text", None), getattr(request, "input_ids", None)
    if text is not None:
        return len(text) if isinstance(text, list) else None
    if ids is not None:
        return len(ids) if ids and isinstance(ids[0], list) else None
    embeds = getattr(request, "input_embeds", None)
    return len(embeds) if embeds and isinstance(embeds[0][0], list) else None


def _check_vectors(name: str, value: Any, width: int) -> None:
    """``value`` is one vector or lists of them, nested."""
    if not isinstance(value, list) or not value:
        raise RequestRefused(f"{name} = {shown(value)} is refused: it must be a list of vectors.")
    if isinstance(value[0], list):
        for i, row in enumerate(value):
            _check_vectors(f"{name}[{i}]", row, width)
    elif len(value) != width or not all(map(is_number, value)):
        raise RequestRefused(
            f"{name} has {len(value)} entries and is refused: "
            f"it must have {width}, all of them finite numbers."
        )
