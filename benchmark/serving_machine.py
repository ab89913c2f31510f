"""What a measurement ran on."""

from __future__ import annotations

import importlib.metadata
import os
import platform

import psutil

#: Instruction sets that decide how fast matrix products can be.
_SETS = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
_SETS += ("asimd", "asimddp", "i8mm", "sve", "bf16")
_PACKAGES = ("torch", "transformers", "sglang", "sglang-ascend")


def describe() -> dict:
    """Processor, memory, system and versions, without anything that names the machine."""
    model, flags = _processor()
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "instruction_sets": [name for name in _SETS if name in flags],
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "threads_env": os.environ.get("OMP_NUM_THREADS"),
    }


def load() -> float:
    """Mean number of processes that wanted a core in the last minute."""
    return os.getloadavg()[0]


def _processor() -> tuple[str, set[str]]:
    model, flags = platform.machine(), set()
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                model = value.strip()
            elif name.strip() in ("flags", "Features"):
                flags = set(value.split())
    return model, flags
