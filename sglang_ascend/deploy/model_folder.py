"""The parts of a checkpoint folder that are read before any process starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sglang_ascend.errors import ConfigError

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
    "tiktoken.model",
    "tekken.json",
)


def read_config(folder: Path, overrides: str = "{}") -> dict[str, Any]:
    """Return ``config.json`` with ``--json-model-override-args`` applied.

    Raises:
        ConfigError: no folder, no or unreadable ``config.json``, or overrides that are no object.
    """
    if not folder.exists():
        raise ConfigError(f"the model folder {folder} does not exist; check --model-path")
    if not folder.is_dir():
        raise ConfigError(
            f"--model-path {folder} is a file; give the folder that holds config.json"
        )
    path = folder / "config.json"
    if not path.is_file():
        inside = ", ".join(sorted(p.name for p in folder.iterdir())[:5]) or "nothing"
        raise ConfigError(
            f"{folder} has no config.json (it holds {inside}); give the folder of a Hugging Face "
            "checkpoint"
        )
    config = _json_object(_read_text(path), f"{path}", "download the checkpoint again")
    extra = _json_object(overrides or "{}", "--json-model-override-args", "give a JSON object")
    return {**config, **extra}


def text_config(config: dict[str, Any]) -> dict[str, Any]:
    """The language model's part of a configuration that may describe other modalities too."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def check_tokenizer(folder: Path, asked: str | None, skip: bool) -> None:
    """Raise ConfigError unless a tokenizer is there: in ``asked`` if given, else in ``folder``."""
    if skip:
        return
    place = Path(asked) if asked else folder
    if not place.exists():
        raise ConfigError(f"--tokenizer-path {place} does not exist; give a local folder")
    if place.is_dir() and not any((place / name).is_file() for name in _TOKENIZER_FILES):
        raise ConfigError(
            f"{place} has no tokenizer ({_TOKENIZER_FILES[0]} or the like); give --tokenizer-path, "
            "or --skip-tokenizer-init to send token ids"
        )


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text ({error}); download the checkpoint again") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def _json_object(text: str, source: str, remedy: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{source} is not valid JSON ({error}); {remedy}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{source} holds a JSON {type(value).__name__}, not an object; {remedy}")
    return value
