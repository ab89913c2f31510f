"""What one forward step needs to know about the requests in it, once for all layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sglang_ascend.errors import ConfigError


@dataclass(frozen=True)
class StepMetadata:
    """Written once per step by ``build``, read by every attention layer.

    Attributes:
        block_table: [requests, max_blocks] int32, the cache block of each page of a request.
        query_lens: new tokens of each request in this step, on the host.
        kv_lens: cached plus new tokens of each request, on the host. The NPU's attention
            operators take both lengths as host lists.
    """

    block_table: torch.Tensor
    query_lens: list[int]
    kv_lens: list[int]


def build(forward_batch, req_to_token: torch.Tensor, page_size: int) -> StepMetadata:
    """Describe the requests of ``forward_batch``.

    Args:
        forward_batch: SGLang's ``ForwardBatch``; decode, prefill (with or without prefix), mixed
            and draft verification with a single chain of draft tokens.
        req_to_token: [request slots, context length] int32, the cache slot of each token.
        page_size: tokens a cache block. SGLang's paged allocator gives out whole blocks, so the
            slot of a page's first token divided by the page size is its block.
    """
    kv_lens = forward_batch.seq_lens_cpu.tolist()
    mode = forward_batch.forward_mode
    if mode.is_decode():
        query_lens = [1] * len(kv_lens)
    elif mode.is_target_verify():
        query_lens, kv_lens = _verify_lens(forward_batch.spec_info, kv_lens)
    else:
        query_lens = [int(n) for n in forward_batch.extend_seq_lens_cpu]
    longest = max(kv_lens, default=0)
    first_slots = req_to_token[:, : max(longest, 1) : page_size]
    # Not an index by tensor, which starts OpenMP's threads for some thousand elements.
    slots = first_slots.index_select(0, forward_batch.req_pool_indices)
    blocks = slots if page_size == 1 else slots // page_size
    return StepMetadata(blocks.to(torch.int32), query_lens, kv_lens)


def _verify_lens(spec_info, kv_lens: list[int]) -> tuple[list[int], list[int]]:
    if getattr(spec_info, "topk", 1) != 1:
        raise ConfigError(
            f"speculative verification with topk={spec_info.topk} is not supported; "
            "use --speculative-eagle-topk 1"
        )
    draft = spec_info.draft_token_num
    return [draft] * len(kv_lens), [length + draft for length in kv_lens]
