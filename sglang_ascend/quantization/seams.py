"""Seams of the quantization room."""

from __future__ import annotations

from sglang_ascend.seam import Seam

QUANTIZATION_SEAMS: tuple[Seam, ...] = (
    Seam(
        name="int8-layers-of-the-checkpoint",
        target="sglang.srt.model_loader.loader.get_quant_config",
        kind="around",
        hook="sglang_ascend.quantization.config:for_model",
        processes=("scheduler",),
        symptom="ascend_w8a8 does not learn which layers of a checkpoint are stored in INT8",
        why_safe="every other method goes to the original",
        upstream="none found",
        remove_when="SGLang hands a quantisation method the folder of the checkpoint",
    ),
)
