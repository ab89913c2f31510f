"""Are the weights of a checkpoint folder all there? Reads headers only."""

from __future__ import annotations

import json
from pathlib import Path

from sglang_ascend.deploy import safetensors_header
from sglang_ascend.deploy.safetensors_header import TensorInfo
from sglang_ascend.errors import ConfigError

INDEX = "model.safetensors.index.json"
_OTHER_FORMATS = ("*.bin", "*.pt", "*.pth", "*.gguf")


def tensors(folder: Path, load_format: str = "auto") -> list[TensorInfo]:
    """Return every tensor that SGLang will load from ``folder``.

    Empty for ``--load-format dummy`` and for formats other than safetensors, whose sizes are not
    known without loading them.

    Raises:
        ConfigError: no weights, a shard missing, truncated or unreadable, or an index that names
            tensors which its shard lacks.
    """
    if load_format == "dummy":
        return []
    shards = _indexed_shards(folder)
    if shards is None:
        paths = sorted(folder.glob("*.safetensors"))
        if not paths:
            _require_other_format(folder, load_format)
        return [tensor for path in paths for tensor in safetensors_header.read(path)]
    _require_all(folder, shards)
    found = []
    for shard, names in sorted(shards.items()):
        inside = safetensors_header.read(folder / shard)
        lacking = sorted(names - {tensor.name for tensor in inside})
        if lacking:
            raise ConfigError(
                f"weight file {folder / shard} lacks {len(lacking)} tensor(s) that {INDEX} places "
                f"there, first {lacking[0]}; the two belong to different checkpoints, download "
                "both again"
            )
        found += inside
    return found


def _indexed_shards(folder: Path) -> dict[str, set[str]] | None:
    """Shard name -> tensor names, from the index; None without one."""
    path = folder / INDEX
    if not path.is_file():
        return None
    try:
        weight_map = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        shards: dict[str, set[str]] = {}
        for name, shard in weight_map.items():
            shards.setdefault(shard, set()).add(name)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path} is unreadable ({type(error).__name__}: {error}); download it again"
        ) from error
    return shards


def _require_all(folder: Path, shards: dict[str, set[str]]) -> None:
    missing = sorted(shard for shard in shards if not (folder / shard).is_file())
    if missing:
        raise ConfigError(
            f"{folder} lacks {len(missing)} of {len(shards)} weight files, first {missing[0]}; "
            "download them"
        )


def _require_other_format(folder: Path, load_format: str) -> None:
    if load_format not in ("auto", "safetensors") or (
        load_format == "auto" and any(any(folder.glob(p)) for p in _OTHER_FORMATS)
    ):
        return
    raise ConfigError(
        f"{folder} has no weight files (*.safetensors); download them, or use --load-format dummy "
        "for random weights"
    )
