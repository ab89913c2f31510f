"""The streaming requests of each server: greedy, token ids in, no early end."""

from __future__ import annotations

import dataclasses

from sglang_ascend.planner.calibration.closed_loop import SGLANG as SGLANG
from sglang_ascend.planner.calibration.closed_loop import Dialect


def _llama_cpp_body(prompt: list[int], output: int) -> dict:
    # Otherwise a slot keeps the prompt of its last request for the next one.
    fresh = {"cache_prompt": False, "ignore_eos": True}
    return {"prompt": prompt, "n_predict": output, "temperature": 0, "stream": True, **fresh}


def _openai_body(prompt: list[int], output: int) -> dict:
    usage = {"include_usage": True, "continuous_usage_stats": True}
    return {
        "prompt": prompt,
        "max_tokens": output,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": usage,
    }


def _openai_tokens(event: dict) -> int | None:
    return (event.get("usage") or {}).get("completion_tokens")


#: The harness around transformers speaks as SGLang does, and has nothing to warm up.
GENERATE = dataclasses.replace(SGLANG, ready=None)
LLAMA_CPP = Dialect("/completion", _llama_cpp_body, lambda event: event.get("tokens_predicted"))
VLLM = Dialect("/v1/completions", _openai_body, _openai_tokens)
