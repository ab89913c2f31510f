"""Rows that an operator left behind its last used one."""

from __future__ import annotations

import torch


def used_rows(rows: torch.Tensor, tokens_per_expert: torch.Tensor) -> torch.Tensor:
    """rows [capacity, hidden] without the unused ones at the end, where that costs no wait.

    On the reference device the counts are on the host. On the NPU reading them would stop the
    stream, and its grouped products skip unused rows by themselves.
    """
    if rows.device.type != "cpu":
        return rows
    return rows[: int(tokens_per_expert.sum())]
