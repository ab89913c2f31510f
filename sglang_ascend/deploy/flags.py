"""Flags that contradict each other, the model or the device, where SGLang would go on or crash."""

from __future__ import annotations

import os
from typing import Any

from sglang_ascend.attention.backend_name import ATTENTION_BACKEND
from sglang_ascend.errors import ConfigError

_ATTENTION_FLAGS = (
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "speculative_draft_attention_backend",
)
_SPECULATIVE = (
    "speculative_draft_model_path",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
)
_LONGER_CONTEXT_ENV = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
_CONTEXT_KEYS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)


def check(args: dict[str, Any], config: dict[str, Any], device: str) -> None:
    """Raise ConfigError for the first contradiction.

    Args:
        args: SGLang's server arguments before it resolves them; None stands for "not given".
        config: the language model's part of ``config.json``.
        device: ``npu`` or ``reference``.
    """
    _check_backends(args, device)
    _check_page_size(args, config, device)
    _check_lengths(args, config)
    _check_workers(args)
    _check_speculative(args, config)


def _check_backends(args: dict[str, Any], device: str) -> None:
    for field in _ATTENTION_FLAGS:
        if args.get(field) not in (None, ATTENTION_BACKEND):
            raise ConfigError(
                f"{_flag(field)} {args[field]} does not run on {device}; the only attention "
                f"backend here is {ATTENTION_BACKEND}, which is the default: drop the flag"
            )
    if args.get("enable_torch_compile"):
        raise ConfigError(f"--enable-torch-compile is not supported on {device}; drop it")


def _check_page_size(args: dict[str, Any], config: dict[str, Any], device: str) -> None:
    page = args.get("page_size")
    if page is None:
        return
    if page < 1:
        raise ConfigError(f"--page-size {page} is too small; give 1 or more tokens")
    if device == "npu" and page not in (allowed := npu_page_sizes(config)):
        raise ConfigError(
            f"--page-size {page} is not allowed by the NPU's attention operators for this model; "
            f"choose one of {', '.join(map(str, allowed))} (default 128)"
        )
    chunk = args.get("chunked_prefill_size")
    if chunk is not None and chunk > 0 and chunk % page:
        lower = chunk // page * page
        raise ConfigError(
            f"--chunked-prefill-size {chunk} is no multiple of --page-size {page}; choose "
            f"{lower or page}{f' or {lower + page}' if lower else ''}"
        )


def npu_page_sizes(config: dict[str, Any]) -> tuple[int, ...]:
    """Page sizes of the NPU operator that this model's attention uses."""
    from sglang_ascend.ops import paged_gqa_attention, paged_mla_attention

    operator = paged_mla_attention if config.get("kv_lora_rank") else paged_gqa_attention
    return operator.SPEC.npu_limits["page_size"].allowed


def _check_lengths(args: dict[str, Any], config: dict[str, Any]) -> None:
    for field in ("context_length", "max_total_tokens", "max_running_requests"):
        if (value := args.get(field)) is not None and value < 1:
            raise ConfigError(f"{_flag(field)} {value} is too small; give 1 or more")
    fraction = args.get("mem_fraction_static")
    if fraction is not None and not 0 < fraction < 1:
        raise ConfigError(
            f"--mem-fraction-static {fraction} is out of range; give a share between 0 and 1"
        )
    page, pool = args.get("page_size") or 1, args.get("max_total_tokens")
    if pool is not None and pool < page:
        raise ConfigError(
            f"--max-total-tokens {pool} holds no whole page of --page-size {page}; give {page} or "
            "more"
        )
    wanted, longest = args.get("context_length"), _longest_context(config)
    if wanted and longest and wanted > longest and not _set(_LONGER_CONTEXT_ENV):
        raise ConfigError(
            f"--context-length {wanted} is longer than the model's {longest} tokens; lower it, or "
            f"set {_LONGER_CONTEXT_ENV}=1 where the model extrapolates"
        )


def _longest_context(config: dict[str, Any]) -> int | None:
    """As SGLang derives it: RoPE scaling multiplies unless the limit already includes it."""
    limit = next((config[k] for k in _CONTEXT_KEYS if isinstance(config.get(k), int)), None)
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if limit is None or "original_max_position_embeddings" in scaling:
        return limit
    kind = scaling.get("rope_type") or scaling.get("type")
    return limit if kind == "llama3" else int(limit * scaling.get("factor", 1))


def _check_workers(args: dict[str, Any]) -> None:
    for field in ("tokenizer_worker_num", "detokenizer_worker_num"):
        if (value := args.get(field, 1)) < 1:
            raise ConfigError(f"{_flag(field)} {value} is too small; give 1 or more")
    if args.get("tokenizer_worker_num", 1) > 1 and args.get("api_key"):
        raise ConfigError(
            "--api-key does not work with --tokenizer-worker-num above 1; use one worker, or check "
            "keys in a proxy"
        )


def _check_speculative(args: dict[str, Any], config: dict[str, Any]) -> None:
    algorithm = args.get("speculative_algorithm")
    if algorithm is None:
        given = [_flag(f) for f in _SPECULATIVE if args.get(f) is not None]
        if given:
            raise ConfigError(
                f"{', '.join(given)} without --speculative-algorithm has no effect; add it, for "
                "example --speculative-algorithm EAGLE, or drop the rest"
            )
        return
    own_draft = config.get("num_nextn_predict_layers")
    needs_draft = algorithm in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
    if needs_draft and not own_draft and args.get("speculative_draft_model_path") is None:
        raise ConfigError(
            f"--speculative-algorithm {algorithm} needs a draft: this model has no MTP layer "
            "(num_nextn_predict_layers), so give --speculative-draft-model-path"
        )


def _set(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in ("1", "true", "yes", "y", "t", "on")


def _flag(field: str) -> str:
    return "--" + field.replace("_", "-")
