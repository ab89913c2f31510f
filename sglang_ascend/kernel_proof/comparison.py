"""Comparison of a kernel's result with its reference."""

from __future__ import annotations

import torch

from sglang_ascend.kernel_proof.tolerances import TABLE, Allowed


def differences(got: torch.Tensor, want: torch.Tensor, allowed: Allowed) -> list[str]:
    """Every way in which `got` is not `want`, with the worst place; empty if it is close enough.

    NaN and infinity must be at the same places in both, with the same sign of infinity.
    """
    if got.shape != want.shape:
        return [f"shape {list(got.shape)} instead of {list(want.shape)}"]
    if not got.numel():
        return []
    got, want = got.double(), want.double()
    found = []
    for what, test in (("NaN", torch.isnan), ("+inf", torch.isposinf), ("-inf", torch.isneginf)):
        wrong = test(got) != test(want)
        if bool(wrong.any()):
            place = tuple(wrong.nonzero()[0].tolist())
            found.append(f"{int(wrong.sum())} places differ in being {what}, first at {place}")
    finite = torch.isfinite(got) & torch.isfinite(want)
    got, want = got.where(finite, 0.0), want.where(finite, 0.0)
    excess = (got - want).abs() - allowed.absolute - allowed.relative * want.abs()
    if float(excess.max()) > 0:
        worst = int(excess.argmax())
        place = tuple(int(index) for index in torch.unravel_index(torch.tensor(worst), got.shape))
        found.append(
            f"{int((excess > 0).sum())} of {got.numel()} values are off, worst at {place}: got"
            f" {float(got.flatten()[worst]):.6g}, expected {float(want.flatten()[worst]):.6g}"
        )
    norms = float(got.norm() * want.norm())
    distance = 1 - float((got * want).sum()) / norms if norms else float(got.norm() + want.norm())
    # The similarity itself is known to a few units of float64.
    if distance > allowed.cosine + 1e-12:
        found.append(f"1 - cosine similarity is {distance:.3g}, allowed is {allowed.cosine:.3g}")
    return found


def assert_close(kernel: str, dtype: str, got: torch.Tensor, want: torch.Tensor) -> None:
    """AssertionError unless `got` is as close to `want` as the table of tolerances asks."""
    allowed = TABLE[kernel, dtype]
    found = differences(got, want, allowed)
    assert not found, f"{kernel} ({dtype}; {allowed.reason}): " + "; ".join(found)
