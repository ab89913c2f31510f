"""All checks together, on the arguments as the launcher hands them over."""

from __future__ import annotations

import pytest

from sglang_ascend.deploy import preflight
from sglang_ascend.errors import ConfigError

PORT = 31202


def arguments(folder, **changes):
    return {"model_path": str(folder), "host": "127.0.0.1", "port": PORT, **changes}


@pytest.mark.parametrize("device", ["npu", "reference"])
def test_a_whole_checkpoint_passes(checkpoint, device):
    preflight.run(arguments(checkpoint, page_size=None, dtype="auto"), device)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tp_size": 4}, "attention heads"),
        ({"port": 0}, "out of range"),
        ({"dtype": "int8"}, "not supported"),
        ({"max_total_tokens": 10**15}, "not enough memory for the KV pool"),
        ({"json_model_override_args": '{"architectures": ["XForCausalLM"]}'}, "not supported by"),
    ],
)
def test_each_kind_of_check_is_wired(checkpoint, changes, message):
    with pytest.raises(ConfigError, match=message) as refused:
        preflight.run(arguments(checkpoint, **changes), "reference")
    assert "\n" not in str(refused.value)


def test_a_broken_shard_is_found(checkpoint):
    shard = checkpoint / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(ConfigError, match="truncated"):
        preflight.run(arguments(checkpoint), "reference")
