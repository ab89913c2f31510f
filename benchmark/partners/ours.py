"""This package on the reference device."""

from __future__ import annotations

import importlib.metadata
import sys

from benchmark.partners import dialects
from benchmark.partners.contender import Contender, Job, Launch

FLOAT32 = "float32"
#: What `--ours` takes; anything but float32 is a value of `--quantization`.
FORMATS = (FLOAT32, "ascend_w8a8")


class Ours(Contender):
    """``python -m sglang_ascend.launch_server``, with the flags that a user would give."""

    family = "ours"
    dialect = dialects.SGLANG

    def __init__(self, number_format: str) -> None:
        self.name = f"ours-{number_format}"
        self.number_format = number_format

    def version(self) -> str:
        return importlib.metadata.version("sglang-ascend")

    def launch(self, job: Job) -> Launch:
        command = [sys.executable, "-m", "sglang_ascend.launch_server", "--device", "reference"]
        command += ["--model-path", job.model, "--port", str(job.port)]
        # Requests that have ended stay in the cache until others need their place.
        command += ["--max-total-tokens", str(2 * job.cache_tokens)]
        if self.number_format != FLOAT32:
            command += ["--quantization", self.number_format]
        return Launch(command)
