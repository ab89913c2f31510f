"""Hugging Face transformers' ``generate`` in static batches."""

from __future__ import annotations

import importlib.metadata
import sys

from benchmark.partners import dialects
from benchmark.partners.contender import Contender, Job, Launch

FORMATS = ("float32", "int8")


class TransformersGenerate(Contender):
    """float32, or PyTorch's dynamic INT8 in every linear layer."""

    family = "transformers"
    dialect = dialects.GENERATE

    def __init__(self, number_format: str) -> None:
        self.name = f"transformers-{number_format}"
        self.number_format = "float32" if number_format == "float32" else "dynamic INT8"
        self._format = number_format

    def version(self) -> str:
        return importlib.metadata.version("transformers")

    def launch(self, job: Job) -> Launch:
        harness = [sys.executable, "-m", "benchmark.partners.transformers_server"]
        flags = ["--model", str(job.folder), "--port", str(job.port), "--format", self._format]
        batch = ["--batch", str(job.requests)]
        return Launch([*harness, *flags, *batch], {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
