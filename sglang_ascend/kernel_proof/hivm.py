"""Huawei's compiler up to HIVM, and the on-chip memory that it plans."""

from __future__ import annotations

import json
import os
import re
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from sglang_ascend.kernel_proof import tools
from sglang_ascend.kernel_proof.frontend import lower
from sglang_ascend.kernel_proof.planned_memory import peaks, unplanned
from sglang_ascend.kernel_proof.store import key_of, stored
from sglang_ascend.kernels.spec import KernelConfig, KernelSpec

# One stepping of each chip stands for all; they differ in the number of cores.
ARCHITECTURES = {"910B": "Ascend910B3", "910C": "Ascend910_9392"}
# Option of triton-ascend -> flag of bishengir-compile, as its backend maps them.
_FLAGS = {
    "multibuffer": "enable-auto-multi-buffer",
    "enable_auto_bind_sub_block": "enable-auto-bind-sub-block",
    "enable_hivm_auto_cv_balance": "enable-hivm-auto-cv-balance",
    "sync_solver": "enable-hivm-graph-sync-solver",
    "unit_flag": "enable-hivm-unit-flag-sync",
    "inject_barrier_all": "enable-hivm-inject-barrier-all-sync",
    "inject_block_all": "enable-hivm-inject-block-all-sync",
    "limit_auto_multi_buffer_of_local_buffer": "limit-auto-multi-buffer-of-local-buffer",
    "set_workspace_multibuffer": "set-workspace-multibuffer",
    "tile_mix_vector_loop": "tile-mix-vector-loop",
    "tile_mix_cube_loop": "tile-mix-cube-loop",
}
_DEFAULTS = {"multibuffer": True, "enable_auto_bind_sub_block": True}
_RETRY = re.compile(r"automatically set (\S+) to false and retrying")
_OVERFLOW = re.compile(r"error: (\w+ overflow, requires \d+ bits while \d+ bits available)")
_ERROR = re.compile(r"error: (.*)")
# What reads the compiler's output; a kept result is worth nothing after it changed.
_CODE = Path(__file__).read_text() + Path(__file__).with_name("planned_memory.py").read_text()
# Answers as CANN's `hivmc` does when it is asked for its version, since the text of HIVM depends on
# that, and writes a placeholder where that would write a binary for the chip.
_STAND_IN = """#!/bin/sh
if [ "$1" = "--version" ]; then echo "hivmc {build}"; exit 0; fi
previous=
for argument in "$@"; do
    if [ "$previous" = "-o" ]; then : >"$argument"; : >"$argument.o"; fi
    previous=$argument
done
"""


@dataclass(frozen=True)
class HivmResult:
    """What the compiler made of a kernel on one chip.

    passed: HIVM was reached with a complete memory plan. message: the first error otherwise.
    ub_bytes, l1_bytes, l0c_bytes: highest planned address of each memory of a core.
    given_up: optimisations that the compiler switched off to make the kernel fit.
    """

    passed: bool
    ub_bytes: int = 0
    l1_bytes: int = 0
    l0c_bytes: int = 0
    given_up: tuple[str, ...] = ()
    message: str = ""


def check(spec: KernelSpec, config: KernelConfig, target: str) -> HivmResult:
    """Compile a configuration for a chip as far as HIVM."""
    linalg = lower(spec, config).linalg
    flags = flags_of(config, target)
    key = key_of("hivm", linalg, *flags, tools.npu_compiler_build(), _CODE)
    kept = stored(
        key, ".json", lambda path: path.write_text(json.dumps(asdict(_compile(linalg, flags))))
    )
    values = json.loads(kept.read_text())
    return HivmResult(**values | {"given_up": tuple(values["given_up"])})


def hivm_text(linalg: str, flags: list[str]) -> tuple[str | None, str]:
    """Run the compiler; return HIVM, or None where it failed, and what the compiler said."""
    with tempfile.TemporaryDirectory() as folder:
        stand_in = Path(folder, "bin", "hivmc")
        stand_in.parent.mkdir()
        stand_in.write_text(_STAND_IN.format(build=tools.npu_compiler_build()))
        stand_in.chmod(0o755)
        source = Path(folder, "kernel.mlir")
        source.write_text(linalg)
        done = tools.run(
            [
                tools.npu_compiler("bishengir-compile"),
                str(source),
                *flags,
                f"--save-temps={folder}",
                "-o",
                str(Path(folder, "kernel")),
            ],
            env=os.environ | {"PATH": f"{stand_in.parent}:{os.environ['PATH']}"},
        )
        said = done.stdout + done.stderr
        hivm = Path(folder, "module.hivm.opt.mlir")
        return (hivm.read_text() if done.returncode == 0 else None), said


def _compile(linalg: str, flags: list[str]) -> HivmResult:
    hivm, said = hivm_text(linalg, flags)
    given_up = tuple(dict.fromkeys(_RETRY.findall(said)))
    if hivm is None:
        message = _OVERFLOW.search(said) or _ERROR.search(said)
        return HivmResult(
            False, given_up=given_up, message=message[1] if message else said.strip()[:500]
        )
    peak = peaks(hivm)
    lost = unplanned(hivm)
    return HivmResult(
        passed=not lost,
        ub_bytes=peak.get("ub", 0),
        l1_bytes=peak.get("cbuf", 0),
        l0c_bytes=peak.get("cc", 0),
        given_up=given_up,
        message="; ".join(lost),
    )


def flags_of(config: KernelConfig, target: str) -> list[str]:
    """Flags of bishengir-compile, as triton-ascend passes them."""
    options = _DEFAULTS | dict(config.options)
    flags = [f"--{_FLAGS[name]}={value}" for name, value in sorted(options.items())]
    return [
        f"--target={ARCHITECTURES[target]}",
        *flags,
        "--enable-hfusion-compile=true",
        "--enable-hivm-compile=true",
        "--enable-triton-kernel-compile=true",
    ]
