"""The streaming requests of each server: greedy, token ids in, no early end."""

from __future__ import annotations

from benchmark.serving_load import Dialect


def _sglang_body(prompt: list[int], output: int) -> dict:
    sampling = {"max_new_tokens": output, "ignore_eos": True, "temperature": 0}
    return {"input_ids": prompt, "sampling_params": sampling, "stream": True}


def _sglang_tokens(event: dict) -> int | None:
    return event.get("meta_info", {}).get("completion_tokens")


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


# SGLang answers requests while it still runs some of its own to warm up.
SGLANG = Dialect("/generate", _sglang_body, _sglang_tokens, ready="/health")
GENERATE = Dialect("/generate", _sglang_body, _sglang_tokens)
LLAMA_CPP = Dialect("/completion", _llama_cpp_body, lambda event: event.get("tokens_predicted"))
VLLM = Dialect("/v1/completions", _openai_body, _openai_tokens)
