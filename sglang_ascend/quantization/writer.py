"""Writing an INT8 checkpoint, one weight file after the other.

A file of the source becomes one of the result under the same name; no more than one is in memory.
"""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from sglang_ascend.deploy import (
    checkpoint,
    int8_checkpoint,
    int8_description,
    model_folder,
    number_formats,
    safetensors_header,
)
from sglang_ascend.deploy.int8_layers import takes_int8
from sglang_ascend.errors import ConfigError
from sglang_ascend.models import cache
from sglang_ascend.quantization import formats
from sglang_ascend.quantization.folder import LAST, UnfinishedFolder
from sglang_ascend.quantization.layer_error import REPORT, weight_error
from sglang_ascend.quantization.smoothing import Factor, Smoothing
from sglang_ascend.quantization.weights import quantise_weight

#: Files of a checkpoint that are copied as they are, beside the weights.
_COPIED = ("*.json", "*.jinja", "*.model", "*.txt", "*.py")
_NOT_COPIED = (LAST, checkpoint.INDEX, int8_description.MODELSLIM_FILE, REPORT, cache.MANIFEST)


class Source:
    """A float checkpoint: its files, and which layers are quantised."""

    def __init__(self, folder: Path) -> None:
        """Read headers and ``config.json``.

        Raises:
            ConfigError: a checkpoint that is damaged, quantised already, or has layers that cannot
                be quantised.
        """
        self.folder = folder
        self.config = model_folder.read_config(folder)
        kind = int8_description.kind_of(folder, self.config)
        if kind != "float":
            raise ConfigError(f"{folder} is quantised already ({kind}); give a float checkpoint")
        tensors = checkpoint.tensors(folder, "safetensors")
        number_formats.check_weights(tensors, "reference")
        # A checkpoint that every device can serve.
        int8_checkpoint.read(folder, self.config, tensors, "npu")
        joined = [t.name for t in tensors if ".experts." in t.name and len(t.shape) == 3]
        if joined:
            raise ConfigError(
                f"{joined[0]}: expected one tensor [out, in] for each expert, found all experts in "
                "one; convert the checkpoint to separate experts, or serve it with --quantization "
                "ascend_w8a8, which splits them while loading"
            )
        self.shards = {path.name: safetensors_header.read(path) for path in self._paths(tensors)}
        self.elements = sum(tensor.elements for tensor in tensors)

    def _paths(self, tensors) -> list[Path]:
        index = self.folder / checkpoint.INDEX
        if not index.is_file():
            return sorted(self.folder.glob("*.safetensors"))
        named = set(json.loads(index.read_text())["weight_map"].values())
        return [self.folder / name for name in sorted(named)]

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 over config.json and the header, size and time of every weight file."""
        digest = hashlib.sha256((self.folder / LAST).read_bytes())
        for name, tensors in self.shards.items():
            stat = (self.folder / name).stat()
            digest.update(f"{name} {stat.st_size} {stat.st_mtime_ns} {tensors}".encode())
        return digest.hexdigest()

    def float_linears(self) -> list[str]:
        """Layers with a weight [out, in] that stay in float and are no table of embeddings."""
        layers = (
            tensor.name.removesuffix(".weight")
            for tensors in self.shards.values()
            for tensor in tensors
            if tensor.name.endswith(".weight") and len(tensor.shape) == 2
        )
        return sorted(layer for layer in layers if not takes_int8(layer) and "embed" not in layer)


def write(
    source: Source,
    out: Path,
    form: str,
    restart: bool = False,
    advance: Callable[[int], None] = lambda elements: None,
    output_errors: dict[str, float] | None = None,
    smooth: Smoothing | None = None,
) -> dict[str, dict[str, Any]]:
    """Write ``source`` in INT8 to ``out``, or go on with it; errors by layer.

    Args:
        form: one of ``formats.FORMATS``.
        restart: replace what an earlier run left in ``out``.
        advance: told how many elements are done.
        output_errors: relative error of a layer's output on a text, for the report.
        smooth: scales that are folded into the weights before they are quantised.

    Raises:
        ConfigError: see ``UnfinishedFolder``.
    """
    if out.resolve() == source.folder.resolve():
        raise ConfigError(f"{out} is the source itself; give a new folder")
    made_from = {"source": source.fingerprint, "format": form}
    if smooth:
        made_from["smooth"] = smooth.made_from
    factors = smooth.factors if smooth else {}
    folder = UnfinishedFolder(out, made_from, restart)
    try:
        layers: dict[str, dict[str, Any]] = {}
        for name, tensors in source.shards.items():
            if folder.has(name):
                advance(sum(tensor.elements for tensor in tensors))
            else:
                content, errors = _quantise_file(source.folder / name, form, factors, advance)
                folder.add(
                    name, functools.partial(save_file, content, metadata={"format": "pt"}), errors
                )
                del content
            layers |= folder.note(name)
        for layer, error in (output_errors or {}).items():
            layers[layer]["output"] = error
        _write_rest(source, folder, form, layers)
        return layers
    finally:
        folder.close()


def _quantise_file(
    path: Path, form: str, factors: dict[str, Factor], advance: Callable[[int], None]
) -> tuple[dict[str, torch.Tensor], dict[str, dict[str, Any]]]:
    content: dict[str, torch.Tensor] = {}
    errors = {}
    with safe_open(path, "pt") as file:
        for name in file.keys():
            tensor = file.get_tensor(name)
            dtype = tensor.dtype
            if name in factors:
                tensor = factors[name].apply(tensor)
            layer = name.removesuffix(".weight")
            if layer != name and takes_int8(layer):
                try:
                    q, scale = quantise_weight(tensor)
                except ConfigError as error:
                    raise ConfigError(f"layer {layer}: {error}") from None
                errors[layer] = weight_error(tensor, q, scale)
                content |= formats.layer_tensors(layer, q, scale, form)
            else:
                content[name] = tensor.to(dtype)
            advance(tensor.numel())
    return content, errors


def _write_rest(source: Source, folder: UnfinishedFolder, form: str, layers: dict) -> None:
    """Everything but weights; ``config.json`` last."""
    for pattern in _COPIED:
        for path in sorted(source.folder.glob(pattern)):
            if path.name not in _NOT_COPIED:
                folder.add(path.name, functools.partial(shutil.copyfile, path))
    where = {
        tensor.name: name
        for name in source.shards
        for tensor in safetensors_header.read(folder.folder / name)
    }
    folder.add_json(REPORT, {"format": form, "layers": layers})
    config = dict(source.config)
    if form == "modelslim":
        names = {name: name.rpartition(".")[0] in layers for name in where}
        folder.add_json(int8_description.MODELSLIM_FILE, formats.modelslim_description(names))
    else:
        config["quantization_config"] = formats.compressed_config(source.float_linears())
    if (source.folder / checkpoint.INDEX).is_file():
        size = sum((folder.folder / name).stat().st_size for name in source.shards)
        index = {"metadata": {"total_size": size}, "weight_map": where}
        folder.add_json(checkpoint.INDEX, index)
    folder.add_json(LAST, config)
