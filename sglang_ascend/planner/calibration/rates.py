"""Measured times of the reference device's kernels, and what they say of sizes in between."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Number formats of products: float32, float32 whose values BF16 holds exactly, and INT8.
OF_BF16 = "float32_of_bf16"
FORMATS = ("float32", OF_BF16, "int8")
#: Float32 with 16 bits of significand, as a format of few bits dequantises to. It is not measured:
#: with AMX it takes five partial products, where float32 takes six and what BF16 holds three
#: (``native/c/float_amx.h``); without, all take the same time.
OF_16_BITS = "float32_of_16_bits"
_BETWEEN = (5 - 3) / (6 - 3)
#: What is measured: rows, width of square weights, and bytes of all weights that take turns. Widths
#: of models are multiples of 64 and seldom powers of two. The first set of weights fits a
#: second-level or shared cache, the second is a whole small model.
ROWS = (1, 16, 128, 2048)
SIDES = (128, 704, 2112)
SET_BYTES = (16 << 20, 512 << 20)
_AXES = (SET_BYTES, ROWS, SIDES)
#: Requests for which attention in decode is measured.
REQUESTS = (1, 16)


@dataclass(frozen=True)
class Rates:
    """Medians of one machine, all of its cores together.

    Attributes:
        figures: seconds by name: ``product/FORMAT/SET_BYTES/ROWS/SIDE`` of a product of [ROWS,
            SIDE] with one of weights [SIDE, SIDE] that take turns; ``attention/KIND/decode/N`` of a
            multiply-add over N requests, ``attention/KIND/prefill``, ``vector`` of a byte moved;
            ``output_layer/N`` of greedy choices of N rows, for each element of the output layer's
            weight;
            ``call/product`` and ``call/vector`` of a call that has next to nothing to do;
            ``loopback/byte`` and ``loopback/latency`` of TCP.
    """

    figures: Mapping[str, float]

    def product_s(self, form: str, rows: float, weights: float, set_bytes: float) -> float:
        """Seconds of [rows, in] times [in, out], in * out = weights, one of ``set_bytes``.

        Straight lines between logarithms. Outside of what was measured, time grows in proportion
        with the product beyond the largest one, and stays above a call's for smaller ones.
        """
        if form == OF_16_BITS:
            least, most = (
                self.product_s(other, rows, weights, set_bytes) for other in measured_for(form)
            )
            return least + _BETWEEN * (most - least)
        side = math.sqrt(weights)
        beyond = max(side / SIDES[-1], 1.0) ** 2 * max(rows / ROWS[-1], 1.0)
        below = min(side / SIDES[0], 1.0) ** 2
        call = self.figures["call/product"]
        within = math.exp(self._log_product_s(form, (set_bytes, rows, side), ()))
        return call + max(0.0, within - call) * beyond * below

    def _log_product_s(self, form: str, at: tuple[float, ...], chosen: tuple[int, ...]) -> float:
        """Between the neighbours on the next axis, each found in the same way on the others."""
        if len(chosen) == len(_AXES):
            return math.log(self.figures[product(form, *chosen)])
        axis = _AXES[len(chosen)]
        return _between(
            [math.log(place) for place in axis],
            math.log(at[len(chosen)]),
            [self._log_product_s(form, at, (*chosen, place)) for place in axis],
        )

    def attention_s(self, kind: str, decode: bool, requests: float) -> float:
        """Seconds of one multiply-add of attention, scores and values counted alike."""
        if not decode:
            return self.figures[f"attention/{kind}/prefill"]
        return self._by_requests(f"attention/{kind}/decode", requests)

    def output_layer_s(self, rows: float) -> float:
        """Seconds of the greedy choices of that many rows, by element of the weight."""
        return self._by_requests("output_layer", rows)

    def _by_requests(self, name: str, requests: float) -> float:
        values = [math.log(self.figures[f"{name}/{n}"]) for n in REQUESTS]
        places = [math.log(n) for n in REQUESTS]
        return math.exp(_between(places, math.log(requests), values))


def measured_for(form: str) -> tuple[str, ...]:
    """Formats whose figures ``Rates.product_s`` reads for this one."""
    return (OF_BF16, "float32") if form == OF_16_BITS else (form,)


def _between(places: Sequence[float], at: float, values: Sequence[float]) -> float:
    """Linear between neighbours, the nearest value outside."""
    if at <= places[0]:
        return values[0]
    points = list(zip(places, values))
    for (left, low), (right, high) in zip(points, points[1:]):
        if at <= right:
            return low + (high - low) * (at - left) / (right - left)
    return values[-1]


def product(form: str, set_bytes: int, rows: int, side: int) -> str:
    """Name of a product's figure."""
    return f"product/{form}/{set_bytes}/{rows}/{side}"
