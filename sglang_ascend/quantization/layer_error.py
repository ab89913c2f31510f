"""How far a quantised weight is from the float one, layer by layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from sglang_ascend.quantization.weights import dequantise_weight

REPORT = "quantize_report.json"


def weight_error(
    weight: torch.Tensor, q: torch.Tensor, scale: torch.Tensor
) -> dict[str, float | list[int]]:
    """Errors of q [out, in] int8 with scale [out, 1] against weight [out, in].

    Returns:
        ``relative``: norm of the difference over norm of the weight; ``worst_channel``: the same of
        the worst output channel; ``peak``: largest |w| over root mean square, which is what one
        outlier costs all other values of its channel.
    """
    weight = weight.float()
    difference = dequantise_weight(q, scale) - weight
    norms = weight.norm(dim=1)
    by_channel = difference.norm(dim=1) / torch.where(norms == 0, 1.0, norms)
    norm = float(norms.norm())
    rms = norm / weight.numel() ** 0.5
    return {
        "shape": list(weight.shape),
        "relative": float(difference.norm()) / norm if norm else 0.0,
        "worst_channel": float(by_channel.max()),
        "peak": float(weight.abs().max()) / rms if rms else 0.0,
    }


def table(layers: Mapping[str, Mapping], count: int = 10) -> Iterable[str]:
    """Lines of the worst layers, by output error where it was measured, else by weight error."""
    measured = any("output" in row for row in layers.values())
    key = "output" if measured else "relative"
    worst = sorted(layers, key=lambda layer: -layers[layer].get(key, 0.0))[:count]
    width = max((len(layer) for layer in worst), default=5)
    yield f"{'layer':<{width}}  weight error  worst channel  peak/rms" + (
        "  output error" if measured else ""
    )
    for layer in worst:
        row = layers[layer]
        line = (
            f"{layer:<{width}}  {row['relative']:>12.4%}  {row['worst_channel']:>13.4%}"
            f"  {row['peak']:>8.1f}"
        )
        yield line + (f"  {row['output']:>12.4%}" if "output" in row else "")
