"""Versions, process kinds and the driver that stands in where no Triton kernel may run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sglang_ascend.errors import ConfigError
from sglang_ascend.plugin import process_kind, versions


def test_installed_sglang_is_supported():
    versions.check_sglang()


def test_other_sglang_fails_with_the_supported_range(monkeypatch):
    monkeypatch.setattr(versions, "version", lambda name: "0.4.9")
    with pytest.raises(ConfigError, match=r"SGLang 0\.4\.9 .* supported: 0\.5\.23.*pip install"):
        versions.check_sglang()


def test_process_kind_follows_the_entry_function():
    def run_scheduler_process():
        return process_kind.detect()

    def run_detokenizer_process():
        return process_kind.detect()

    assert run_scheduler_process() == "scheduler"
    assert run_detokenizer_process() == "detokenizer"
    assert process_kind.detect() == "http_server"


def test_importing_the_package_has_no_side_effects():
    code = "import sys, sglang_ascend; print({'torch', 'sglang', 'triton'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert out.stdout.strip() == "set()", out.stderr


KERNEL = """
import torch, triton, triton.language as tl
from sglang_ascend.plugin import host_driver

host_driver.install()

@triton.jit
def kernel(x, n: tl.constexpr):
    tl.store(x + tl.arange(0, n), 1.0)

try:
    kernel[(1,)](torch.zeros(4), 4)
except host_driver.KernelLaunchRefused as error:
    print("refused:", error)
"""


def test_a_triton_kernel_is_refused_on_the_reference_device(tmp_path):
    script = tmp_path / "launch_kernel.py"  # Triton reads a kernel's source from its file
    script.write_text(KERNEL)
    out = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert out.stdout.startswith("refused: a Triton kernel was launched"), out.stderr
