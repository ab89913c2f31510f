"""A kernel as x86 machine code, from the same linalg that goes to the NPU compiler.

This runs the kernel's arithmetic and addressing as triton-ascend lowered them. It says nothing of
HIVM's passes, of synchronisation between cores, or of the chip's own rounding; programs of a grid
run one after the other.
"""

from __future__ import annotations

import ctypes
import tempfile
from functools import cache
from pathlib import Path

from sglang_ascend.errors import ConfigError
from sglang_ascend.kernel_proof import tools
from sglang_ascend.kernel_proof.frontend import lower
from sglang_ascend.kernel_proof.store import key_of, stored
from sglang_ascend.kernels.spec import KernelConfig, KernelSpec

_RUNTIME = Path(__file__).with_name("runtime.c")
# One instruction set for all machines: a newer one rounds to bfloat16 in another way.
_CPU = "x86-64-v3"
_PASSES = (
    "--execution-engine-convert-hfusion-to-upstream",
    "--llvm-request-c-wrappers",
    "--convert-elementwise-to-linalg",
    "--linalg-fuse-elementwise-ops",
    "--eliminate-empty-tensors",
    "--empty-tensor-to-alloc-tensor",
    "--one-shot-bufferize=allow-return-allocs-from-loops=true",
    "--buffer-deallocation-pipeline",
    "--convert-bufferization-to-memref",
    "--canonicalize",
    "--cse",
    "--convert-linalg-to-loops",
    "--lower-affine",
    "--expand-strided-metadata",
    "--lower-affine",
    "--convert-scf-to-cf",
    "--memref-expand",
    "--arith-expand",
    "--convert-math-to-llvm",
    "--convert-math-to-libm",
    "--convert-complex-to-llvm",
    "--convert-vector-to-llvm",
    "--convert-index-to-llvm",
    "--finalize-memref-to-llvm",
    "--convert-arith-to-llvm",
    "--convert-cf-to-llvm",
    "--convert-func-to-llvm",
    "--reconcile-unrealized-casts",
)


def entry_point(spec: KernelSpec, config: KernelConfig):
    """The compiled C function: (lock, workspace, arguments..., grid sizes, program ids)."""
    lowered = lower(spec, config)
    function = getattr(_library(lowered.linalg), f"_mlir_ciface_{lowered.name}")
    function.restype = None
    return function


@cache
def _library(linalg: str) -> ctypes.CDLL:
    key = key_of(
        "native",
        linalg,
        _RUNTIME.read_text(),
        *_PASSES,
        _CPU,
        tools.npu_compiler_build(),
        tools.LLVM_VERSION,
    )
    return ctypes.CDLL(str(stored(key, ".so", lambda path: _compile(linalg, path))))


def _compile(linalg: str, library: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Hints to the NPU's memory planner, which the upstream passes do not know.
        text = "\n".join(line for line in linalg.splitlines() if "annotation.mark" not in line)
        (folder / "kernel.mlir").write_text(text)
        for program, *arguments in (
            ("bishengir-opt", "kernel.mlir", *_PASSES, "-o", "llvm.mlir"),
            ("mlir-translate", "--mlir-to-llvmir", "llvm.mlir", "-o", "kernel.ll"),
            ("opt", "-O3", f"-mcpu={_CPU}", "kernel.ll", "-o", "kernel.bc"),
            (
                "llc",
                "-O3",
                f"-mcpu={_CPU}",
                "--relocation-model=pic",
                "-filetype=obj",
                "kernel.bc",
                "-o",
                "kernel.o",
            ),
            (
                "gcc",
                "-O2",
                "-shared",
                "-fPIC",
                "kernel.o",
                str(_RUNTIME),
                "-lm",
                "-o",
                str(library),
            ),
        ):
            find = tools.npu_compiler if program == "bishengir-opt" else tools.host_tool
            done = tools.run([find(program), *arguments], cwd=folder)
            if done.returncode:
                raise ConfigError(
                    f"{program} cannot lower the kernel for the host: {done.stderr.strip()[:1000]}"
                )
