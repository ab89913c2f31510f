"""The npu platform takes SGLang's generic code paths, not SGLang's own NPU code."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys

#: torch.npu as far as SGLang looks at it while it is imported.
SCRIPT = """
import types
import torch

torch.npu = types.SimpleNamespace(is_available=lambda: True)
from sglang_ascend.plugin import host_driver

host_driver.install()
import sglang.srt.mem_cache.memory_pool as pool
from sglang.srt.platforms import current_platform
from sglang.srt.utils import common, is_npu

print(type(current_platform).__name__, is_npu(), pool._is_npu, vars(common)["is_npu"]())
"""


def test_sglang_sees_a_generic_device(tmp_path):
    version = importlib.metadata.version("torch").split("+")[0]
    info = tmp_path / f"torch_npu-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch_npu\nVersion: {version}\n")
    for name in ("libascendcl.so", "libhccl.so"):
        (tmp_path / name).write_bytes(b"")
    environ = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "LD_LIBRARY_PATH": str(tmp_path),
        "SGLANG_PLATFORM": "ascend",
        "SGLANG_ASCEND_DEVICE": "npu",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environ, capture_output=True, text=True, timeout=180
    )
    # Only code inside the module that defines is_npu, which asks for memory figures, sees True.
    assert done.stdout.split() == ["NpuPlatform", "False", "False", "True"], done.stderr[-2000:]
