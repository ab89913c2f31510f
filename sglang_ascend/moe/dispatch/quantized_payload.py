"""Activations as INT8 with one float32 scale a token, quantised before they are sent."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sglang_ascend.ops.dynamic_quant import dynamic_quant


def dequantize(q: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """q [n, hidden] int8, scale [n] float32 -> [n, hidden] in dtype.

    In float32 each element differs from what was quantised by at most scale / 2 (and a float32
    rounding): it was rounded to the nearest multiple of its row's scale, and none was clipped.
    """
    return (q.float() * scale.unsqueeze(1)).to(dtype)


def pack(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Tensors [tokens, columns] one after the other as bytes [tokens, sum of row bytes] uint8.

    A row of the result is not a token: the tensors stay in one piece each, which copies faster.
    """
    tokens, row_bytes = len(parts[0]), sum(_row_bytes(part) for part in parts)
    flat = torch.cat([part.contiguous().view(torch.uint8).view(-1) for part in parts])
    return flat.view(tokens, row_bytes)


def unpack(
    payload: torch.Tensor, token_counts: Sequence[int], like: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The tensors that every rank gave `pack`, joined over ranks: [sum(token_counts), columns].

    payload: what they packed, by rank. like: tensors of the same dtypes and columns.
    """
    blocks = payload.view(-1).split([tokens * payload.shape[1] for tokens in token_counts])
    out, start = [], 0
    for part in like:
        end = start + _row_bytes(part)
        pieces = [
            block[tokens * start : tokens * end] for block, tokens in zip(blocks, token_counts)
        ]
        out.append(torch.cat(pieces).view(part.dtype).view(len(payload), part.shape[1]))
        start = end
    return out


def _row_bytes(part: torch.Tensor) -> int:
    return part.shape[1] * part.element_size()


def pack_routed(hidden, ids, weights, quantized: bool) -> list[torch.Tensor]:
    """What a token takes with it: slots, weights, hidden row (quantised: its scale, INT8 row)."""
    if not quantized:
        return [ids, weights, hidden]
    q, scale = dynamic_quant(hidden)
    return [ids, weights, scale.unsqueeze(1), q]
