"""Seams that keep SGLang's own bookkeeping off Triton and CUDA."""

from __future__ import annotations

from sglang_ascend.seam import Seam

PLUGIN_SEAMS: tuple[Seam, ...] = (
    Seam(
        name="last-cache-slot",
        target="sglang.srt.mem_cache.allocation.get_last_loc",
        kind="replace",
        hook="sglang_ascend.plugin.cache_slots:get_last_loc",
        processes=("scheduler",),
        symptom="page sizes above 1: a Triton kernel is launched for any attention backend but two",
        why_safe="same result from SGLang's own torch function; called once a batch, not per layer",
        upstream="none found",
        remove_when="SGLang asks the platform's supports_triton here, as it does elsewhere",
    ),
)
