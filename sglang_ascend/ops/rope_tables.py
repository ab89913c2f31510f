"""Rotation tables of rotary position embeddings: plain, and YaRN with DeepSeek's mscale.

All tables are float32 [max_positions, rotary_dim], the cosines of the rotary_dim / 2 frequencies in
the first half and the sines in the second. Sources: arXiv 2104.09864 (RoPE), arXiv 2309.00071
(YaRN).
"""

import math

import torch


def plain_cos_sin(rotary_dim: int, max_positions: int, theta: float = 10000.0) -> torch.Tensor:
    """Tables for frequencies theta^(-2i / rotary_dim)."""
    return _tables(1.0 / _wavelengths(rotary_dim, theta), max_positions, 1.0)


def yarn_cos_sin(
    rotary_dim: int,
    max_positions: int,
    theta: float = 10000.0,
    *,
    factor: float,
    original_max_positions: int,
    beta_fast: float = 32,
    beta_slow: float = 1,
    mscale: float | None = None,
    mscale_all_dim: float | None = None,
) -> torch.Tensor:
    """Tables for a context that is `factor` times the pretrained `original_max_positions`.

    Frequencies that turn more than `beta_fast` times within the original context stay, those below
    `beta_slow` turns are divided by `factor`, those between are blended. The amplitude is
    yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all_dim) when both are given and not
    zero, else yarn_mscale(factor).
    """
    wavelengths = _wavelengths(rotary_dim, theta)
    low = max(math.floor(_turns_index(beta_fast, rotary_dim, theta, original_max_positions)), 0)
    high = _turns_index(beta_slow, rotary_dim, theta, original_max_positions)
    high = min(math.ceil(high), rotary_dim - 1)
    # Equal bounds would divide by zero; a narrow ramp is a step.
    width = (high - low) or 0.001
    index = torch.arange(rotary_dim // 2, dtype=torch.float32)
    keep = 1 - ((index - low) / width).clamp(0, 1)
    frequencies = (1.0 / (factor * wavelengths)) * (1 - keep) + (1.0 / wavelengths) * keep
    if mscale and mscale_all_dim:
        amplitude = yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all_dim)
    else:
        amplitude = yarn_mscale(factor)
    return _tables(frequencies, max_positions, amplitude)


def yarn_mscale(factor: float, mscale: float = 1.0) -> float:
    """The attention temperature of YaRN: 0.1 * mscale * ln(factor) + 1, and 1 without extension."""
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


def yarn_softmax_scale(query_dim: int, factor: float, mscale_all_dim: float = 0.0) -> float:
    """DeepSeek's attention scale: query_dim^-1/2 times yarn_mscale(factor, mscale_all_dim)^2.

    query_dim: size of a whole query head, rotary part included. mscale_all_dim 0 means no change.
    """
    scale = query_dim**-0.5
    return scale * yarn_mscale(factor, mscale_all_dim) ** 2 if mscale_all_dim else scale


def _wavelengths(rotary_dim: int, theta: float) -> torch.Tensor:
    if rotary_dim <= 0 or rotary_dim % 2:
        raise ValueError(f"rotary_dim must be a positive even number, got {rotary_dim}")
    return theta ** (torch.arange(0, rotary_dim, 2, dtype=torch.float32) / rotary_dim)


def _turns_index(turns: float, rotary_dim: int, theta: float, max_positions: int) -> float:
    """The (fractional) frequency index that makes `turns` turns within `max_positions`."""
    return rotary_dim * math.log(max_positions / (turns * 2 * math.pi)) / (2 * math.log(theta))


def _tables(frequencies: torch.Tensor, max_positions: int, amplitude: float) -> torch.Tensor:
    angles = torch.outer(torch.arange(max_positions, dtype=torch.float32), frequencies)
    return torch.cat((angles.cos() * amplitude, angles.sin() * amplitude), dim=-1)
