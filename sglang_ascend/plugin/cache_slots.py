"""SGLang's bookkeeping of cache slots without Triton.

Upstream: ``sglang.srt.mem_cache.allocation.get_last_loc(req_to_token, req_pool_indices_tensor,
prefix_lens_tensor)``; ours has the same signature and hands over to its torch variant.
"""

from __future__ import annotations

import torch


def get_last_loc(
    req_to_token: torch.Tensor,
    req_pool_indices_tensor: torch.Tensor,
    prefix_lens_tensor: torch.Tensor,
) -> torch.Tensor:
    """Cache slot of each request's last cached token, -1 where nothing is cached. [requests]"""
    from sglang.srt.mem_cache.allocation import get_last_loc_torch

    return get_last_loc_torch(req_to_token, req_pool_indices_tensor, prefix_lens_tensor)
