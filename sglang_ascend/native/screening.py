"""The output layer where only the largest logit counts: exact, at a quarter of the bytes.

A product with an INT8 copy of the weights says of nearly every token that it cannot be the largest,
since its error is bounded: for w = w' + e and x = x' + r, with w' and x' the quantised forms,

    |w.x - w'.x'| <= |e| |x| + |w'| |r|,

and what is left, some tokens of tens of thousands, is computed in float32. Rows are quantised
twice, the second time what the first left over, so |r| <= sqrt(in) |x| / (4 * 127^2), and a bound
for each token times |x| holds for every row.
"""

from __future__ import annotations

import torch

from sglang_ascend.native import int8, rows
from sglang_ascend.native.library import call, kernels

#: Rows that are screened; a larger product is worth its whole weight.
MOST_ROWS = 32
#: Rows of the weight that are quantised at a time.
_BLOCK = 4096
_EPSILON = 2.0**-24


class ScreenedHead:
    """INT8 copy of an output layer's weight, and how far from it products can be.

    Args:
        weight: [vocabulary, hidden] float32 on the CPU; has to stay as it is (see ``forget``).

    Raises:
        ValueError: the native kernels do not take this weight.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        vocabulary, hidden = weight.shape
        plain = kernels() is not None and weight.dtype == torch.float32 and weight.stride(1) == 1
        if not plain or hidden >= 2**17:
            raise ValueError("screening takes dense float32 rows on the CPU")
        self._weight = weight
        self._scale, self._bound = torch.empty(vocabulary), torch.empty(vocabulary)
        quantised = torch.empty(vocabulary, hidden, dtype=torch.int8)
        for start in range(0, vocabulary, _BLOCK):
            part = slice(start, start + _BLOCK)
            self._quantise(weight[part], quantised[part], part)
        self._packed = int8.pack(quantised.t().contiguous())

    def _quantise(self, weight: torch.Tensor, quantised: torch.Tensor, part: slice) -> None:
        q, scale = rows.dynamic_quant(weight)
        quantised.copy_(q)
        self._scale[part] = scale
        near = q * scale[:, None]
        hidden = weight.shape[1]
        # Of rows: quantised twice. Of sums: every rounding in float32, here, in the product with
        # the copy and in the exact one.
        of_rows = hidden**0.5 / (4 * 127**2)
        of_sums = (2 * hidden + 32) * _EPSILON
        size = torch.maximum(near.norm(dim=1), weight.norm(dim=1))
        error = (weight - near).norm(dim=1) + (of_rows + of_sums) * size
        self._bound[part] = error * (1 + 1e-3)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """x [rows, hidden] -> [rows, vocabulary]; -inf where a logit cannot be its row's largest.

        All others are those of ``native.matmul.linear`` in every bit.
        """
        x = x.contiguous()
        high, high_scale = rows.dynamic_quant(x)
        low, low_scale = rows.dynamic_quant(x - high.float() * high_scale[:, None])
        rough = int8.matmul(
            torch.cat((high, low)),
            torch.cat((high_scale, low_scale)),
            self._packed,
            self._scale,
            torch.float32,
        )
        count, hidden = x.shape
        vocabulary = len(self._scale)
        logits = x.new_empty(count, vocabulary)
        call(
            kernels().screened_logits,
            *(rough.data_ptr(), self._bound.data_ptr(), x.data_ptr(), self._weight.data_ptr()),
            *(logits.data_ptr(), count, hidden, vocabulary, x.stride(0), self._weight.stride(0)),
        )
        return logits


_updates = 0


def forget() -> None:
    """To be called before any weight changes: no copy made so far is used again."""
    global _updates
    _updates += 1


def head_of(owner, weight: torch.Tensor) -> ScreenedHead | None:
    """The screened form of ``weight``, made when first asked for and kept on ``owner``.

    None for a weight that cannot be screened.
    """
    made, head = getattr(owner, "screened_head", (None, None))
    if made != _updates:
        try:
            head = ScreenedHead(weight)
        except ValueError:
            head = None
        owner.screened_head = _updates, head
    return head
