"""Which layers ``--quantization ascend_w8a8`` computes in INT8, and what such a layer must be.

A layer goes by the name of its weight in the checkpoint, without ``.weight``. Embedding, head,
router and norms are no projections and stay in the model's dtype.
"""

from __future__ import annotations

SCHEME = "ascend_w8a8"
#: The layers that SGLang joins into one, by the name of the whole.
FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "fused_qkv_a_proj_with_mqa": ("q_a_proj", "kv_a_proj_with_mqa"),
}
#: Up-projection of MLA: SGLang folds it into query and output, where its input is no activation.
ABSORBED = "kv_b_proj"
#: Longest sum of products of INT8 numbers that cannot leave INT32: 127 * 128 each.
MAX_IN = (2**31 - 1) // (127 * 128)

_EXPERT_NAMES = ("w1", "w2", "w3")
_FLOAT_NAMES = (ABSORBED, "eh_proj")
_FLOAT_PARTS = frozenset(
    ("indexer", "visual", "vision_tower", "vision_model", "audio_tower", "multi_modal_projector")
)


def takes_int8(layer: str) -> bool:
    """Whether a float layer of this name is quantised: projections of the language model."""
    *parts, name = layer.split(".")
    if name in _FLOAT_NAMES or _FLOAT_PARTS.intersection(parts):
        return False
    return "_proj" in name or name in _EXPERT_NAMES


def why_not(shape: tuple[int, ...], device: str) -> str | None:
    """Why a weight [out, in] cannot be computed in INT8 on ``device``, or None."""
    if len(shape) != 2:
        return f"its weight has {len(shape)} axes, expected 2: [out, in]"
    rows_out, rows_in = shape
    if rows_in > MAX_IN:
        return f"it has {rows_in} inputs; INT32 holds the sum of at most {MAX_IN}"
    if device == "npu":
        from sglang_ascend.ops.quant_matmul import SPEC

        limit = SPEC.npu_limits["row elements"]
        for axis, size in (("outputs", rows_out), ("inputs", rows_in)):
            if not limit.accepts(size):
                return f"it has {size} {axis}; {SPEC.name} on npu takes {limit} ({limit.source})"
    return None
