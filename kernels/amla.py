"""The arithmetic of AMLA, arXiv 2509.25224: a float is multiplied by adding to its bits.

F * 2^n is F with n * 2^23 added to its bits. Online softmax rescales its accumulator O by
exp(m_old - m_new). AMLA writes exp(-m) = 2^n / s, adds the change of n to the exponents of O, and
puts the rest into the weights, exp(score - m) * s16, where s16 is s rounded to bfloat16 so that the
largest weight, s16 itself, is exact in the bfloat16 product with the values. What rounding s took,
c = s / s16, is a relative change of O of c_old / c_new - 1, added to its low bits: a change e of F
is an addition of e * (1 + mantissa of F) * 2^23 to its bits, and 1.5 is the mean of that factor.
The result is O / (sum of exp(score - m) * s16).
"""

from __future__ import annotations

import triton
import triton.language as tl

# Adding to the exponent of 0 gives no zero. The paper starts accumulators at 2^-80 and clears what
# ends above 1e10; but 2^-80 leaves the exponent's range after a few large jumps of the maximum, and
# sums may cancel to 0 at any time. Here an accumulator below the start value is put back to it
# before each addition, which at most `MOST_HALVINGS` then cannot take out of the range.
START = tl.constexpr(2.0**-80)
MOST_HALVINGS = tl.constexpr(-30.0)
MEAN_SIGNIFICAND = tl.constexpr(1.5)
# The published constant that goes with it, eight units of the last bit.
ROUND_UP = tl.constexpr(1.0e-6)
ONE_EXPONENT = tl.constexpr(8388608.0)
LOG2_E = tl.constexpr(1.4426950408889634)
# ln 2 in two parts, the first short enough that its product with an exponent is exact.
LN2_HIGH = tl.constexpr(0.693359375)
LN2_LOW = tl.constexpr(-2.12194440e-4)


@triton.jit
def nearest(x):
    """The integer next to x, as a float; halves go up."""
    return tl.floor(x + 0.5)


@triton.jit
def power_of_two(top, seen, excess):
    """n, s16 and c of a running maximum [rows], float32; s is in [2^-1/2, 2^1/2].

    seen: whether a row has a maximum yet; n = 0 and c = 1 until then. excess: the previous c.
    Rounding s / excess instead of s, as the paper does, keeps c from changing by two rounding
    errors at a time.
    """
    exponent = tl.where(seen, -nearest(top * LOG2_E), 0.0)
    rest = tl.where(seen, (top + exponent * LN2_HIGH) + exponent * LN2_LOW, 0.0)
    factor = tl.exp(rest)
    factor16 = (factor / excess).to(tl.bfloat16).to(tl.float32)
    return exponent, factor16, factor / factor16


@triton.jit
def bits_to_add(exponent, new_exponent, excess, new_excess):
    """What to add to the bits of a row of the accumulator [rows], int32, when n and c change."""
    halvings = tl.minimum(tl.maximum(new_exponent - exponent, MOST_HALVINGS), 0.0)
    correction = MEAN_SIGNIFICAND * (excess / new_excess - 1.0)
    return nearest((halvings + correction + ROUND_UP) * ONE_EXPONENT).to(tl.int32)


@triton.jit
def add_bits(accumulator, addend):
    """Add addend [rows] to the bits of accumulator [rows, columns]."""
    accumulator = tl.where(tl.abs(accumulator) < START, START, accumulator)
    bits = accumulator.to(tl.int32, bitcast=True) + addend[:, None]
    return bits.to(tl.float32, bitcast=True)
