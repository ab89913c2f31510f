"""Libraries that stand in for CANN's, so that the real torch_npu loads on a machine without an NPU.

They are built by gcc where they are used: `stand_in.c` for what has to do something, and a function
that returns 0 for every other symbol of CANN that torch_npu links against.
"""

from __future__ import annotations

import importlib.resources
import re
import shutil
import subprocess
from pathlib import Path

from sglang_ascend.errors import ConfigError

#: CANN's libraries, as torch_npu names them to the dynamic linker; the first holds all functions.
LIBRARIES = (
    "ascendcl",
    "hccl",
    "acl_op_compiler",
    "ge_runner",
    "graph",
    "acl_tdt_channel",
    "atb",
    "opapi",
)
#: Names of CANN's functions: runtime, profiler, driver, collectives, and the C++ of ATB.
_OF_CANN = re.compile(r"(acl|Msprof|rt[A-Z]|Hccl|_ZN3atb)")
_TOOLS = ("gcc", "nm")
_TOOL_TIMEOUT_S = 120
SOC_ENV = "SGLANG_ASCEND_STAND_IN_SOC"


def check_tools() -> None:
    """Raise ConfigError where gcc or its nm is missing."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise ConfigError(
            f"{' and '.join(missing)} not found; the contract check builds stand-ins for CANN's "
            "libraries; run `sudo apt-get install -y gcc libc6-dev`"
        )


def build(torch_npu: Path, folder: Path) -> None:
    """Write the libraries for the torch_npu package in `torch_npu` to `folder`.

    Raises:
        ConfigError: a tool is missing or fails; the message has its last line.
    """
    check_tools()
    source = folder / "stand_in.c"
    source.write_text(importlib.resources.files(__package__).joinpath("stand_in.c").read_text())
    base, rest = folder / "stand_in.o", folder / "zeros.c"
    _run("gcc", "-O1", "-fPIC", "-c", str(source), "-o", str(base))
    zeros = sorted(_missing_symbols(torch_npu) - _symbols(base, "--defined-only"))
    rest.write_text("".join(f"long {name}(void) {{ return 0; }}\n" for name in zeros))
    contents = [str(rest), str(base)]
    for library in LIBRARIES:
        name = f"lib{library}.so"
        _run("gcc", "-shared", f"-Wl,-soname,{name}", *contents, "-o", str(folder / name))
        # A function that torch_npu looks up in one of the others is found through this dependency.
        contents = ["-Wl,--no-as-needed", f"-L{folder}", f"-l{LIBRARIES[0]}"]


def _missing_symbols(torch_npu: Path) -> set[str]:
    """CANN's symbols that torch_npu's own libraries leave open."""
    libraries = [*torch_npu.glob("lib/*.so"), *torch_npu.glob("_C*.so")]
    needed, given = set(), set()
    for library in libraries:
        needed |= _symbols(library, "--undefined-only", "--dynamic")
        given |= _symbols(library, "--defined-only", "--dynamic")
    return {name for name in needed - given if _OF_CANN.match(name)}


def _symbols(file: Path, *flags: str) -> set[str]:
    lines = _run("nm", *flags, str(file)).splitlines()
    return {line.split()[-1].partition("@")[0] for line in lines if line.strip()}


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ConfigError(
            f"building stand-ins for CANN's libraries failed: {' '.join(command[:2])}: {reason}"
        )
    return done.stdout
