"""llama.cpp's own server, which batches requests (that of llama-cpp-python does not)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmark.partners import dialects, environments
from benchmark.partners.contender import Contender, Job, Launch
from sglang_ascend.errors import ConfigError
from sglang_ascend.models import cache, smollm2

FAMILY = "llama.cpp"
FORMATS = ("F32", "Q8_0", "Q4_0")
QUANTIZE_LIMIT_S = 300


class LlamaCpp(Contender):
    """``llama-server`` on a GGUF of one number format.

    Args:
        server: path of ``llama-server``; None for the installed one. ``llama-quantize`` lies
            beside it.
    """

    family = FAMILY
    dialect = dialects.LLAMA_CPP

    def __init__(self, number_format: str, server: Path | None) -> None:
        self.name = f"llama.cpp-{number_format}"
        self.number_format = number_format
        self._given, self._server = server, server or environments.program(FAMILY)

    def missing(self) -> str | None:
        if self._given:
            return None if self._given.is_file() else f"not installed: no file {self._given}"
        return None if environments.is_installed(FAMILY) else environments.how_to(FAMILY)

    def unfit(self, job: Job) -> str | None:
        if job.model == smollm2.NAME:
            return None
        return f"not measured: a GGUF is made of {smollm2.NAME} only"

    def version(self) -> str:
        if not self._given:  # the program built from PyPI's source does not know its version
            return environments.installed_requirement(FAMILY)
        done = subprocess.run(
            [self._server, "--version"], capture_output=True, text=True, timeout=60
        )
        said = [line for line in (done.stdout + done.stderr).splitlines() if "version:" in line]
        return said[0].split("version:")[1].strip() if said else "unknown"

    def launch(self, job: Job) -> Launch:
        cores = str(len(os.sched_getaffinity(0)))
        command = [str(self._server), "--model", str(self._gguf())]
        command += ["--host", "127.0.0.1", "--port", str(job.port), "--no-webui"]
        command += ["--threads", cores, "--threads-batch", cores]
        command += ["--parallel", str(job.requests), "--ctx-size", str(job.cache_tokens)]
        return Launch(command)

    def _gguf(self) -> Path:
        """The weights in this format, made once, by way of the float32 that everybody serves."""
        float32 = self._convert(smollm2.find_gguf(), "F32")
        if self.number_format == "F32":
            return float32
        return self._convert(float32, self.number_format)

    def _convert(self, source: Path, number_format: str) -> Path:
        folder = cache.root() / "gguf"
        target = folder / f"{smollm2.NAME}-{smollm2.GGUF_SHA256[:8]}.{number_format}.gguf"
        if target.is_file():
            return target
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_suffix(f".{os.getpid()}.tmp")
        quantize = self._server.with_name("llama-quantize")
        if not quantize.is_file():
            raise ConfigError(
                f"no llama-quantize beside {self._server.name}; build llama.cpp whole"
            )
        done = subprocess.run(
            [quantize, "--allow-requantize", source, unfinished, number_format],
            capture_output=True,
            text=True,
            timeout=QUANTIZE_LIMIT_S,
        )
        if done.returncode:
            print(done.stderr[-2000:], file=sys.stderr)
            unfinished.unlink(missing_ok=True)
            raise ConfigError(
                f"llama-quantize ended with exit code {done.returncode} making {target.name}; "
                "see above"
            )
        unfinished.rename(target)
        return target
