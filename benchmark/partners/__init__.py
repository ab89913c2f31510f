"""The servers that ``benchmark.serving`` compares, a file each."""

from __future__ import annotations

from pathlib import Path

from benchmark.partners import llama_cpp, ours, transformers_generate, vllm_cpu
from benchmark.partners.contender import Contender
from benchmark.partners.stock_sglang import StockSglang

FAMILIES = (StockSglang.family, "transformers", llama_cpp.FAMILY, vllm_cpu.FAMILY)
#: Ratios are taken against this one.
BASELINE = "transformers-float32"


def contenders(
    own_formats: list[str],
    families: list[str],
    llama_server: Path | None = None,
    vllm_python: Path | None = None,
) -> list[Contender]:
    """Ours first, then the partners, in the order in which they are measured."""
    found: list[Contender] = [ours.Ours(number_format) for number_format in own_formats]
    for family in families:
        if family == StockSglang.family:
            found.append(StockSglang())
        elif family == "transformers":
            formats = transformers_generate.FORMATS
            found += [transformers_generate.TransformersGenerate(one) for one in formats]
        elif family == llama_cpp.FAMILY:
            found += [llama_cpp.LlamaCpp(one, llama_server) for one in llama_cpp.FORMATS]
        else:
            found.append(vllm_cpu.VllmCpu(vllm_python))
    return found
