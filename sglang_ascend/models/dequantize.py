"""Turning a GGUF file into a float32 checkpoint folder. Runs in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path


def dequantize(gguf: Path, folder: Path, max_tokens: int) -> None:
    """Write the model, tokenizer, chat template and generation settings of ``gguf``.

    Args:
        gguf: a quantised checkpoint whose architecture transformers knows.
        folder: an existing folder for float32 safetensors and the JSON files beside them.
        max_tokens: longest input that the tokenizer announces, in tokens.
    """
    # transformers imports torchvision where it finds one, and PyPI's build does not import beside
    # a CPU torch. None hides it; this process has no use for images.
    sys.modules["torchvision"] = None  # type: ignore[assignment]
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    _say("reading and dequantising the weights to float32")
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    _say("reading the tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.model_max_length = max_tokens
    _say("writing the checkpoint")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _say(step: str) -> None:
    print(f"sglang_ascend: {step}", file=sys.stderr, flush=True)
