"""The same kernels compiled for lesser instruction sets than this machine has."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_ascend.native.build import MARCH_ENV

#: -march and the flags of /proc/cpuinfo that it needs beside those of the ones before.
SETS = (
    ("x86-64", "sse2"),
    ("haswell", "avx2"),
    ("skylake-avx512", "avx512bw"),
    ("cascadelake", "avx512_vnni"),
    ("alderlake", "avx_vnni"),
)


def supported():
    flags = Path("/proc/cpuinfo").read_text().split()
    return [march for march, flag in SETS if flag in flags]


@pytest.mark.parametrize("march", supported())
def test_kernels_compiled_for(march, tmp_path):
    here = Path(__file__).parent
    files = ("test_int8.py", "test_float_matmul.py", "test_against_references.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", *(str(here / name) for name in files)],
        env=os.environ | {MARCH_ENV: march, "SGLANG_ASCEND_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        cwd=here.parents[1],
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert len(list(tmp_path.glob("*.so"))) == 1
