"""A text and the float model that it runs through, under transformers."""

from __future__ import annotations

from pathlib import Path

import torch

from sglang_ascend.errors import ConfigError


def tokens(option: str, text: Path, folder: Path, most: int) -> torch.Tensor:
    """The first ``most`` tokens of a text [1, tokens] int64, as the model in ``folder`` reads it.

    Args:
        option: the flag that named the file, for errors.

    Raises:
        ConfigError: a text that cannot be read or has no two tokens.
    """
    from transformers import AutoTokenizer

    try:
        words = text.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{option} {text} cannot be read: {error}; give a text file") from error
    ids = AutoTokenizer.from_pretrained(folder)(words, return_tensors="pt").input_ids[:, :most]
    if ids.shape[1] < 2:
        raise ConfigError(f"{option} {text} has no text; give a page or more")
    return ids.long()


def float_model(folder: Path) -> torch.nn.Module:
    """The model in float32 on the CPU."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
