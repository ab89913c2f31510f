"""Truncated, missing and mismatched weight files."""

from __future__ import annotations

import contextlib
import json
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from sglang_ascend.deploy import checkpoint as weights
from sglang_ascend.deploy import number_formats, safetensors_header
from sglang_ascend.errors import ConfigError

FIRST = "model-00001-of-00002.safetensors"


def test_lists_every_tensor_with_its_shape(checkpoint):
    found = {t.name: (t.dtype, t.shape) for t in weights.tensors(checkpoint)}
    assert found == {
        "embed": ("F32", (7, 12)),
        "norm": ("F32", (12,)),
        "head": ("BF16", (7, 12)),
    }


def test_without_an_index_every_file_counts(checkpoint):
    (checkpoint / weights.INDEX).unlink()
    assert len(weights.tensors(checkpoint)) == 3


def test_missing_shard(checkpoint):
    (checkpoint / FIRST).unlink()
    with pytest.raises(ConfigError, match=f"lacks 1 of 2 weight files, first {FIRST}"):
        weights.tensors(checkpoint)


def test_every_truncation_is_noticed(checkpoint):
    whole = (checkpoint / FIRST).read_bytes()
    for length in [0, 1, 7, 8, 9, len(whole) // 2, len(whole) - 1]:
        (checkpoint / FIRST).write_bytes(whole[:length])
        with pytest.raises(ConfigError, match="weight file .* is truncated"):
            weights.tensors(checkpoint)


def test_appended_bytes_are_noticed(checkpoint):
    with open(checkpoint / FIRST, "ab") as handle:
        handle.write(b"\0")
    with pytest.raises(ConfigError, match="is too long"):
        weights.tensors(checkpoint)


def test_shard_of_another_checkpoint(checkpoint):
    save_file({"other": torch.ones(2)}, checkpoint / FIRST)
    with pytest.raises(ConfigError, match="lacks 2 tensor.s. that model.safetensors.index.json"):
        weights.tensors(checkpoint)


def test_git_lfs_pointer(checkpoint):
    (checkpoint / FIRST).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(ConfigError, match="Git LFS pointer; run `git lfs pull`"):
        weights.tensors(checkpoint)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"weight_map": 3}', "{}"])
def test_broken_index(checkpoint, content):
    (checkpoint / weights.INDEX).write_text(content)
    with pytest.raises(ConfigError, match="index.json is unreadable"):
        weights.tensors(checkpoint)


def test_no_weights_at_all(checkpoint):
    for path in checkpoint.glob("model*"):
        path.unlink()
    with pytest.raises(ConfigError, match="no weight files"):
        weights.tensors(checkpoint)
    assert weights.tensors(checkpoint, load_format="dummy") == []


@given(noise=st.binary(max_size=200))
@settings(max_examples=200)
def test_no_bytes_escape_as_another_error(tmp_path_factory, noise):
    folder = tmp_path_factory.mktemp("noise")
    path = folder / "model.safetensors"
    length = len(noise).to_bytes(8, "little")
    for content in (noise, length + noise, length + b"{" + noise[1:]):
        path.write_bytes(content)
        with contextlib.suppress(ConfigError):
            assert safetensors_header.read(path) == []  # the header `{}` is right
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2]},
        {"dtype": "F32", "shape": "x", "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": None},
        3,
    ],
)
def test_inconsistent_header(tmp_path, entry):
    header = json.dumps({"w": entry}).encode()
    (tmp_path / "m.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(ConfigError, match="weight file"):
        safetensors_header.read(tmp_path / "m.safetensors")


def test_eight_bit_weights_are_refused_by_name(checkpoint):
    save_file({"w": torch.ones(2, 2).to(torch.float8_e4m3fn)}, checkpoint / "extra.safetensors")
    (checkpoint / weights.INDEX).unlink()
    with pytest.raises(ConfigError, match="1 weight.s. are stored as F8_E4M3 .first w."):
        number_formats.check_weights(weights.tensors(checkpoint), "reference")
