"""The module that SGLang's model registry imports and whose ``EntryClass`` it reads."""

from __future__ import annotations

import importlib
import logging
import os
import re
from pathlib import Path

from sglang_ascend.plugin.served_model import ARCHITECTURES_ENV

logger = logging.getLogger(__name__)

_ENTRY = re.compile(r"^EntryClass\s*=\s*(\[[^\]]*\]|\w+)", re.MULTILINE)


def index(folder: Path) -> dict[str, str]:
    """Name of each model class in ``folder`` -> name of its module, from the files' text.

    A file that assigns ``EntryClass`` in another way is left out; SGLang's own scan finds it.
    """
    modules = {}
    for path in sorted(folder.glob("*.py")):
        for assigned in _ENTRY.findall(path.read_text(encoding="utf-8")):
            modules.update(dict.fromkeys(re.findall(r"\w+", assigned), path.stem))
    return modules


def find(architectures: list[str]) -> list[type]:
    """SGLang's classes of these architectures and of their draft models; [] where one is unknown.

    A draft model has the name of its model with something behind it (``...ForCausalLMNextN``).
    """
    package = importlib.import_module("sglang.srt.models")
    modules = index(Path(package.__path__[0]))
    if not all(name in modules for name in architectures):
        return []
    disabled = os.environ.get("SGLANG_DISABLED_MODEL_ARCHS", "").split(",")
    found = []
    for name in [name for name in modules if name.startswith(tuple(architectures))]:
        if modules[name] in disabled:
            continue
        try:
            module = importlib.import_module(f"{package.__name__}.{modules[name]}")
        except Exception as error:
            logger.warning("SGLang's model file %s cannot be imported: %s", modules[name], error)
            continue
        found += [cls for cls in _entries(module) if cls.__name__ == name]
    return found


def _entries(module) -> list[type]:
    entry = module.EntryClass
    return entry if isinstance(entry, list) else [entry]


EntryClass = find([name for name in os.environ.get(ARCHITECTURES_ENV, "").split(",") if name])
