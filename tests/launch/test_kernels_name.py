"""The folder ``kernels/`` does not pass for the distribution of that name."""

from __future__ import annotations

import subprocess
import sys

from tests.launch.conftest import ROOT

_CHECK = """
import sys
sys.modules["torchvision"] = None  # this check needs no images, and its import may fail
import sglang_ascend.kernels
from transformers.utils import is_kernels_available
assert not is_kernels_available(), "transformers takes kernels/ for the distribution"
try:
    from kernels import get_kernel
except ImportError:
    print("right")
"""


def test_kernels_is_no_regular_package():
    assert not (ROOT / "kernels/__init__.py").exists()
    assert (ROOT / "sglang_ascend/kernels").resolve() == ROOT / "kernels"


def test_from_the_root_of_the_repository():
    """``python -c`` and ``python -m`` put the current folder first on sys.path."""
    done = subprocess.run(
        [sys.executable, "-c", _CHECK], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "right\n", done.stderr
