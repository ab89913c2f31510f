"""The largest decode batch that meets a time per output token."""

from __future__ import annotations

from collections.abc import Callable

_ACCURACY = 1e-4
_MOST = 1 << 16


def largest(seconds_at: Callable[[float], float], limit_s: float, most: float = _MOST) -> float:
    """Largest batch, not necessarily whole, at which ``seconds_at(batch) <= limit_s``.

    Args:
        seconds_at: grows with the batch.
        most: bound on the batch, for instance what the KV pool holds.

    Returns:
        0.0 where not even a batch near nothing meets the limit.
    """
    low, high = 1e-3, min(8.0, most)
    if seconds_at(low) > limit_s:
        return 0.0
    low_s = seconds_at(low)
    while (high_s := seconds_at(high)) <= limit_s:
        if high >= most:
            return most
        low, low_s, high = high, high_s, min(2 * high, most)
    while high - low > _ACCURACY * high:
        # Regula falsi kept away from the ends, so that both of them move.
        share = (limit_s - low_s) / (high_s - low_s) if high_s > low_s else 0.5
        middle = low + (high - low) * min(max(share, 0.02), 0.98)
        middle_s = seconds_at(middle)
        if middle_s <= limit_s:
            low, low_s = middle, middle_s
        else:
            high, high_s = middle, middle_s
        if limit_s - low_s < _ACCURACY * limit_s:
            return low
    return low
