"""Seams of the moe room."""

from __future__ import annotations

from sglang_ascend.seam import Seam

MOE_SEAMS: tuple[Seam, ...] = (
    Seam(
        name="gate-grouped-sigmoid",
        target="sglang.srt.layers.moe.topk.biased_grouped_topk",
        kind="replace",
        hook="sglang_ascend.moe.gate:grouped_sigmoid",
        processes=("scheduler",),
        symptom="the NPU's fused gating operator is never called for DeepSeek-V3's gate",
        why_safe="same signature; the surrounding select_experts is untouched; parity is tested",
        upstream="none found",
        remove_when="SGLang's TopK lets a platform replace the choice without its bookkeeping",
    ),
    Seam(
        name="gate-softmax",
        target="sglang.srt.layers.moe.topk.fused_topk_native",
        kind="around",
        hook="sglang_ascend.moe.gate:softmax",
        processes=("scheduler",),
        symptom="the NPU's fused gating operator is never called for softmax gates",
        why_safe="everything but a plain softmax gate goes to the original",
        upstream="none found",
        remove_when="SGLang's TopK lets a platform replace the choice without its bookkeeping",
    ),
)
