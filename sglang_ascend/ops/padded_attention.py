"""Softmax attention of one padded batch on the reference device, in float32."""

import torch
import torch.nn.functional as F

# Scores (request, query, key) whose mask is held at one time; more queries are computed in chunks.
_MAX_MASK_ELEMENTS = 2**23
# Chunks of a long causal prefill are short enough that most hidden scores are never computed.
_MAX_CHUNK = 256


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, visible: torch.Tensor, scale: float
) -> torch.Tensor:
    """Attention in which query (b, i) sees the keys j < visible[b, i].

    query [b, q, heads, dim], key [b, s, kv_heads, dim], value [b, s, kv_heads, value_dim], all
    float32, with heads a multiple of kv_heads; visible [b, q] int64, at least 1 everywhere.
    Returns [b, q, heads, value_dim].
    """
    batch, queries, heads, dim = query.shape
    keys, kv_heads = key.shape[1], key.shape[2]
    key, value = key.transpose(1, 2), value.transpose(1, 2)
    if queries == 1:
        # The heads of a group share their keys: as queries of one head they need one pass over
        # them.
        group = heads // kv_heads
        grouped = query.view(batch, kv_heads, group, dim)
        mask = additive_mask(visible, keys)
        if mask is not None:
            mask = mask[:, None].expand(batch, 1, group, keys)
        out = F.scaled_dot_product_attention(grouped, key, value, attn_mask=mask, scale=scale)
        return out.reshape(batch, 1, heads, -1)
    query = query.transpose(1, 2)
    chunk = min(max(_MAX_MASK_ELEMENTS // (batch * keys), 1), _MAX_CHUNK)
    parts = []
    for start in range(0, queries, chunk):
        part = visible[:, start : start + chunk]
        # Keys that no query of the chunk sees are not computed; half of a long causal prefill is
        # not.
        seen = int(part.max())
        mask = additive_mask(part, seen)
        out = F.scaled_dot_product_attention(
            query[:, :, start : start + chunk],
            key[:, :, :seen],
            value[:, :, :seen],
            attn_mask=None if mask is None else mask[:, None],
            scale=scale,
            enable_gqa=heads != kv_heads,
        )
        parts.append(out.transpose(1, 2))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def additive_mask(visible: torch.Tensor, keys: int) -> torch.Tensor | None:
    """visible [b, q] -> float32 [b, q, keys]: 0 if visible, else -inf; None if all are visible."""
    if int(visible.min()) >= keys:
        return None
    hidden = torch.arange(keys) >= visible.unsqueeze(-1)
    return torch.zeros(hidden.shape, dtype=torch.float32).masked_fill_(hidden, float("-inf"))
