"""What ``--model-path`` accepts: the name of an embedded model, or a local folder."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

from sglang_ascend.errors import ConfigError
from sglang_ascend.models import smollm2

TINY_DEEPSEEK_V3 = "tiny-deepseek-v3"
DEFAULT_MODEL = smollm2.NAME


def _tiny_deepseek_v3() -> Path:
    return Path(__file__).with_name("tiny_deepseek_v3")


_EMBEDDED: dict[str, Callable[[], Path]] = {
    smollm2.NAME: smollm2.prepare,
    TINY_DEEPSEEK_V3: _tiny_deepseek_v3,
}
EMBEDDED = tuple(_EMBEDDED)


def resolve(name_or_path: str) -> Path:
    """Return the folder of an embedded model, preparing it if need be, or an existing local path.

    A local path wins only where it does not spell the name of an embedded model, so that a folder
    in the current directory cannot stand in for one unnoticed; write ``./name`` for the folder.

    Raises:
        ConfigError: neither a name nor an existing path, or the embedded model cannot be prepared.
    """
    prepare = _EMBEDDED.get(name_or_path.lower())
    if prepare is not None:
        return prepare()
    path = Path(name_or_path).expanduser()
    if name_or_path and path.exists():
        return path
    close = difflib.get_close_matches(name_or_path.lower(), EMBEDDED, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise ConfigError(
        f"--model-path {name_or_path!r} is neither a local folder nor an embedded model; {hint}"
        f"embedded models: {', '.join(EMBEDDED)}; download other models first and give their folder"
    )
