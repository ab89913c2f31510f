"""What INT8 rows have to be, given the row that was quantised."""

from __future__ import annotations

import torch

from sglang_ascend.kernel_proof.comparison import assert_close


def assert_quantised(
    kernel: str, q: torch.Tensor, scale: torch.Tensor, want_q: torch.Tensor, want_scale
) -> None:
    """`scale` within the table's tolerance; `q` equal but for quotients that round either way.

    A scale that differs in its last bits moves a quotient across a half, and the integer by one,
    for fewer than one value in 2**11; a wrong rounding rule does so for half of the ties and more.
    """
    assert_close(kernel, "bf16", scale, want_scale)
    off = (q.int() - want_q.int()).abs()
    assert int(off.max()) <= 1, f"{kernel}: integers off by {int(off.max())}"
    assert float((off > 0).float().mean()) <= 2**-11, f"{kernel}: {int((off > 0).sum())} integers"
