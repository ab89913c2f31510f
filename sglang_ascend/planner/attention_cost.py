"""Durations of a layer's attention: norm, projections, the attention itself, output projection."""

from __future__ import annotations

from dataclasses import replace

from sglang_ascend.planner.device import Device, Work, fused
from sglang_ascend.planner.layout import Step


def norm(device: Device, step: Step) -> Work:
    """Residual sum, RMSNorm and quantisation in one kernel."""
    row = step.shape.hidden * (3 * step.wide_width + step.narrow_width)
    return device.vector(step.token_wise * row)


def down(device: Device, step: Step) -> Work:
    """MLA: down-projections of query and latent, with their norms, on the rank's share of tokens.

    In decode, where no collective lies between, MLAProlog does them in the kernel of ``project``.
    """
    shape = step.shape
    columns = shape.q_lora + shape.kv_lora + shape.rope_dim
    row = shape.hidden * step.narrow_width + columns * step.wide_width
    weights = shape.hidden * columns * step.weight_width
    product = device.matmul(step.token_wise, shape.hidden, columns, step.narrow, weights, row)
    norms = device.vector(step.token_wise * columns * 2 * step.wide_width)
    if step.prefill:
        return product + norms
    both = fused(product, norms)
    return (
        replace(both, seconds=both.seconds - both.fixed_s, fixed_s=0.0) if step.group == 1 else both
    )


def project(device: Device, step: Step, weights_in_l2: float = 0.0) -> Work:
    """Queries, keys and values of the rank's heads, rotary positions, write to the cache.

    Args:
        weights_in_l2: bytes of these weights that a prefetch has brought to L2.
    """
    shape, tokens = step.shape, step.tokens
    heads = shape.heads / step.group
    if shape.is_mla:
        inner = shape.q_lora or shape.hidden
        columns = heads * shape.head_dim
        rotated = heads * shape.rope_dim + shape.kv_lora + shape.rope_dim
    else:
        kv_heads = max(1.0, shape.kv_heads / step.group)
        inner = shape.hidden
        columns = heads * shape.head_dim + kv_heads * (shape.head_dim + shape.v_dim)
        rotated = columns
    weights = max(0.0, inner * columns * step.weight_width - weights_in_l2)
    row = inner * step.narrow_width + columns * step.wide_width
    product = device.matmul(tokens, inner, columns, step.narrow, weights, row)
    rope = device.vector(tokens * rotated * 2 * step.wide_width)
    if not shape.is_mla:
        return product + rope
    if step.prefill:
        return product + rope + _expand(device, step, heads)
    absorb = _absorb(device, step, heads, shape.head_dim - shape.rope_dim)
    return fused(product, rope, absorb)


def _expand(device: Device, step: Step, heads: float) -> Work:
    """Keys and values of the group's prompts from their latents, those of cached prefixes too."""
    shape = step.shape
    held = step.requests * step.context + (step.tokens - step.requests) / 2
    columns = heads * (shape.head_dim - shape.rope_dim + shape.v_dim)
    weights = shape.kv_lora * columns * step.weight_width
    row = (shape.kv_lora + columns) * step.wide_width
    return device.matmul(held, shape.kv_lora, columns, step.narrow, weights, row)


def _absorb(device: Device, step: Step, heads: float, width: int) -> Work:
    """A head's ``width`` elements to or from the latent, one product a head."""
    shape = step.shape
    weights = heads * width * shape.kv_lora * step.wide_width
    row = heads * (width + shape.kv_lora) * step.wide_width
    return device.matmul(step.tokens, width, heads * shape.kv_lora, step.wide, weights, row)


def attention(device: Device, step: Step) -> Work:
    """Scores and weighted values over the context."""
    shape, constants = step.shape, device.constants
    heads = shape.heads / step.group
    pairs = step.tokens * step.context
    if step.prefill:
        flops = 2.0 * pairs * heads * (shape.head_dim + shape.v_dim)
        row = heads * (shape.head_dim + 2 * shape.v_dim) * step.wide_width
        efficiency = constants.prefill_attention_efficiency
        return device.attention(flops, step.tokens * row, step.wide, efficiency)
    if shape.is_mla:
        key, value, kv_heads = shape.kv_lora + shape.rope_dim, shape.kv_lora, 1.0
        entry = key * step.kv_width
    else:
        key, value = shape.head_dim, shape.v_dim
        kv_heads = max(1.0, shape.kv_heads / step.group)
        entry = kv_heads * (key + value) * step.kv_width
    rows = heads / kv_heads * step.tokens / max(step.requests, 1e-9)
    efficiency = constants.attention_efficiency * rows / (rows + constants.attention_half_rows)
    nbytes = step.requests * step.context * entry
    return device.attention(2.0 * pairs * heads * (key + value), nbytes, step.wide, efficiency)


def out(device: Device, step: Step, weights_in_l2: float = 0.0) -> Work:
    """Values back from the latent (MLA decode) and the output projection."""
    shape, features = step.shape, step.role.features
    converted = features.flashcomm and features.tp_dp_conversion
    heads = shape.heads if converted else shape.heads / step.group
    tokens = step.share if converted else step.tokens
    weights = max(0.0, heads * shape.v_dim * shape.hidden * step.weight_width - weights_in_l2)
    row = heads * shape.v_dim * (step.wide_width + step.narrow_width)
    row += shape.hidden * step.wide_width
    work = device.matmul(tokens, int(heads * shape.v_dim), shape.hidden, step.narrow, weights, row)
    if shape.is_mla and not step.prefill:
        work += _absorb(device, step, shape.heads / step.group, shape.v_dim)
    return work
