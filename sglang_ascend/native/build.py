"""Compile the C kernels of the reference device once for each machine, with the system's compiler.

The library lies in the cache folder under a name that changes with sources, flags, compiler and
instruction set, so a cache that several machines share never gives one the code of another.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shutil
import subprocess
from pathlib import Path

from sglang_ascend import cache_folder
from sglang_ascend.errors import ConfigError

#: What to compile for, as gcc's -march has it; default native, this machine. For tests and for
#: libraries that are compiled on one machine and used on others.
MARCH_ENV = "SGLANG_ASCEND_NATIVE_MARCH"
SOURCES = Path(__file__).with_name("c")
COMPILERS = ("cc", "gcc", "clang")
TIMEOUT_S = 120
_FLAGS = (
    *("-O3", "-std=gnu11", "-fPIC", "-shared", "-pthread"),
    # Neither errno nor floating-point traps are read; both keep loops from being vectorised.
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"),
)


def library() -> Path:
    """Path of the compiled library, compiling it where the cache has none.

    Raises:
        ConfigError: no C compiler, or it failed; names what was tried.
    """
    compiler = find_compiler()
    target = cache_folder.root() / f"native-{_key(compiler)}.so"
    return cache_folder.stored(target, functools.partial(_compile, compiler))


def find_compiler() -> str:
    """$CC, or the first of ``COMPILERS`` on the PATH."""
    candidates = (os.environ["CC"],) if os.environ.get("CC") else COMPILERS
    for name in candidates:
        if path := shutil.which(name):
            return path
    raise ConfigError(
        f"no C compiler: {', '.join(candidates)} not found; install gcc (Debian, Ubuntu: apt "
        "install gcc libc6-dev) or set CC"
    )


def _compile(compiler: str, target: Path) -> None:
    command = [compiler, *_flags(), *map(str, sorted(SOURCES.glob("*.c"))), "-o", str(target)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{compiler} did not compile the native kernels: {error}") from error
    if done.returncode:
        reason = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[0]
        raise ConfigError(f"{compiler} did not compile the native kernels: {reason}")


def _flags() -> tuple[str, ...]:
    return (f"-march={os.environ.get(MARCH_ENV) or 'native'}", *_FLAGS)


def _key(compiler: str) -> str:
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.read_bytes())
    real = Path(compiler).resolve()
    digest.update(repr((_flags(), str(real), real.stat().st_mtime_ns, _instruction_set())).encode())
    return digest.hexdigest()[:16]


def _instruction_set() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
