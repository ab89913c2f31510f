"""Which architectures the installed SGLang serves, without importing its 250 model files.

Every model file of SGLang ends in ``EntryClass = ...``; importing them all takes tens of seconds,
reading them takes a tenth of one.
"""

from __future__ import annotations

import difflib
import functools
import importlib.util
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sglang_ascend.errors import ConfigError

_ENTRY = re.compile(r"^EntryClass\b[^=\n]*=\s*(\[[^\]]*\]|\([^)]*\)|[^\n]+)", re.MULTILINE)
_COMMENT = re.compile(r"#[^\n]*")
_NAME = re.compile(r"[A-Za-z_]\w*")


#: Our own package in SGLANG_EXTERNAL_MODEL_PACKAGE, which adds no architecture.
OWN_PACKAGE = "sglang_ascend.plugin.served_model"


@functools.cache
def supported() -> frozenset[str]:
    """Names of the architectures in ``sglang.srt.models``."""
    spec = importlib.util.find_spec("sglang")  # of a submodule would import the package
    models = Path(spec.origin).parent / "srt" / "models"
    names: set[str] = set()
    for path in models.rglob("*.py"):
        for entry in _ENTRY.findall(path.read_text(encoding="utf-8")):
            names.update(_NAME.findall(_COMMENT.sub("", entry)))
    return frozenset(names)


def check(config: dict[str, Any], model_impl: str = "auto") -> str:
    """Return the architecture that will be served.

    SGLang would fall back to running an unknown architecture through transformers; here that has to
    be asked for with ``--model-impl transformers``.

    Raises:
        ConfigError: none is named, or none of them is supported.
    """
    named = config.get("architectures")
    if not isinstance(named, list) or not named or not all(isinstance(n, str) for n in named):
        raise ConfigError(
            f'config.json names no architecture ("architectures": {named!r}); it should name one '
            'that SGLang serves, for example ["DeepseekV3ForCausalLM"]'
        )
    package = os.environ.get("SGLANG_EXTERNAL_MODEL_PACKAGE", "")
    elsewhere = model_impl == "transformers" or package not in ("", OWN_PACKAGE)
    for name in named:
        if elsewhere or name in supported():
            return name
    raise ConfigError(
        f"architecture {', '.join(named)} is not supported by the installed SGLang; nearest: "
        f"{', '.join(nearest(named[0], supported()))}; or try --model-impl transformers"
    )


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three names of ``known`` that are spelt most like ``name``."""
    by_lower = {k.lower(): k for k in sorted(known)}
    close = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.0)
    return [by_lower[match] for match in close]
