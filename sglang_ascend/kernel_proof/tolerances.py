"""How far a kernel may be from its reference, by kernel and dtype, with the reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Allowed:
    """absolute, relative: |got - want| <= absolute + relative * |want| everywhere.

    cosine: 1 - cosine similarity of the whole result at most this.
    """

    absolute: float
    relative: float
    cosine: float
    reason: str


_EXACT = Allowed(0.0, 0.0, 0.0, "moves or integers: nothing is rounded")

_ATTENTION = Allowed(
    absolute=2**-8,
    relative=2**-7,
    cosine=2e-5,
    reason="weights are rounded to bfloat16 (2^-8 of each) before their product with values of"
    " about 1, and the result is rounded once more; AMLA's powers of two add less than that",
)

# (kernel, dtype of its configuration) -> what is allowed.
TABLE: dict[tuple[str, str], Allowed] = {
    ("amla_decode", "bf16"): _ATTENTION,
    ("gqa_decode", "bf16"): _ATTENTION,
    ("gqa_prefill", "bf16"): _ATTENTION,
    ("mla_decode", "bf16"): _ATTENTION,
    ("split_combine", "bf16"): Allowed(
        2**-20, 2**-8, 1e-5, "float32 sums of weights that add up to 1, one rounding to bfloat16"
    ),
}

# One rounding of a float32 result that was added up in another order.
_ROUNDED = "the same float32 arithmetic, one rounding to bfloat16 that may fall to the other side"
_SCALE = Allowed(
    0.0,
    2**-16,
    1e-9,
    "scales: up to 8192 squares added one by one; exponentials of another library",
)
TABLE |= {
    ("count_pairs", "bf16"): _EXACT,
    ("order_pairs", "bf16"): _EXACT,
    ("scatter_rows", "bf16"): _EXACT,
    ("scatter_rows", "i8"): _EXACT,
    ("pack_int8_rows", "i8"): _EXACT,
    ("dispatch_unpack", "bf16"): _EXACT,
    ("dispatch_unpack", "i8"): _EXACT,
    ("dynamic_quant", "bf16"): Allowed(
        0.0, 0.0, 0.0, "a maximum, a division and a rounding, each as in the reference"
    ),
    ("quant_grouped_matmul", "bf16"): Allowed(
        0.0, 0.0, 0.0, "exact integer sums, scaled and rounded in the reference's order"
    ),
    ("rms_norm_quant", "bf16"): _SCALE,
    ("add_rms_norm_quant", "bf16"): _SCALE,
    ("swiglu_quant", "bf16"): _SCALE,
    ("gate_topk_grouped_sigmoid", "fp32"): Allowed(
        0.0, 2**-20, 1e-9, "float32 exponentials of another library, sums in another order"
    ),
    ("moe_unpermute", "bf16"): Allowed(2**-18, 2**-7, 1e-5, _ROUNDED),
    ("kv_rmsnorm_rope_write", "bf16"): Allowed(2**-18, 2**-7, 1e-5, _ROUNDED),
    ("rope_halves", "bf16"): Allowed(2**-18, 2**-7, 1e-5, _ROUNDED),
}
