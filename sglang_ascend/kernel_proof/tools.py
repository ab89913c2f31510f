"""The external programs of the checks, or how to get them."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from sglang_ascend.errors import ConfigError

COMPILER_PIN = "ascendnpu-ir==1.2.0"
LLVM_VERSION = "19"
STEP_LIMIT_S = 300.0
_LLVM_FOLDER = Path(f"/usr/lib/llvm-{LLVM_VERSION}/bin")
_DEBIAN_PACKAGES = {
    "mlir-translate": f"mlir-{LLVM_VERSION}-tools",
    "opt": f"llvm-{LLVM_VERSION}",
    "llc": f"llvm-{LLVM_VERSION}",
    "gcc": "gcc libc6-dev",
}


@cache
def host_tool(name: str) -> str:
    """Path of gcc or a program of LLVM 19; ConfigError names the Debian package that has it."""
    if name == "gcc":
        found = shutil.which("gcc")
    else:
        found = shutil.which(name, path=_LLVM_FOLDER) or shutil.which(f"{name}-{LLVM_VERSION}")
    if found is None:
        what = name if name == "gcc" else f"{name} of LLVM {LLVM_VERSION}"
        raise ConfigError(
            f"{what} is not installed, and native runs of kernels need it; run"
            f" `sudo apt-get install -y {_DEBIAN_PACKAGES[name]}`"
        )
    return found


@cache
def npu_compiler(name: str) -> str:
    """Path of a program of the package ascendnpu-ir, such as "bishengir-compile"."""
    found = importlib.util.find_spec("ascendnpuir")
    folder = Path(found.origin).parent / "bin" if found else None
    if folder is None or not (folder / name).exists():
        raise ConfigError(
            f"{name}, the compiler of Ascend NPU IR, is not installed; run"
            f" `pip install --no-deps {COMPILER_PIN}`"
        )
    return str(folder / name)


@cache
def npu_compiler_build() -> str:
    """ "1.2.0 (8796a8ac1508 2026-07-29)": version, commit and date of bishengir-compile."""
    text = run([npu_compiler("bishengir-compile"), "--version"]).stdout
    match = re.search(r"bishengir-compile (\S+) \(\S+ (\S+ \S+)\)", text)
    if match is None:
        raise ConfigError(
            f"bishengir-compile answers --version with {text!r}; the HIVM check knows"
            f" {COMPILER_PIN}"
        )
    return f"{match[1]} ({match[2]})"


def run(command: list[str], **options) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, at most `STEP_LIMIT_S`; the caller looks at its exit status."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=STEP_LIMIT_S, check=False, **options
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"{Path(command[0]).name} has not ended after {STEP_LIMIT_S:.0f} s; it was stopped"
        ) from None
