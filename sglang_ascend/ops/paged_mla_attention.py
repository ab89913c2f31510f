"""Absorbed multi-head latent attention over a paged cache: all heads read one latent per token."""

from collections.abc import Sequence

import torch

from sglang_ascend.native import attention
from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3, TINY_DEEPSEEK, MlaModel
from sglang_ascend.ops.npu_attention import causal_mask, drop_empty_requests, restore_rows
from sglang_ascend.ops.padded_attention import additive_mask
from sglang_ascend.ops.paged import gather_rows, key_slots
from sglang_ascend.ops.ragged import check_lens, padded_batches, scatter_result
from sglang_ascend.ops.spec import (
    FLOATS,
    HALVES,
    INTS,
    ContractCase,
    NpuLimit,
    Operator,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)

_DOC = "aclnnFusedInferAttentionScoreV4, MLA with query dim 512"
# Float32 scores that the reference holds at one time: 64 MiB.
_MAX_SCORES = 2**24
# Chunks of a long causal prefill are short enough that most hidden scores are never computed.
_MAX_CHUNK = 128

SPEC = OperatorSpec(
    name="paged_mla_attention",
    summary="softmax(scale * (q_latent latent^T + q_rope rope^T)) latent per request and head.",
    source=(
        "arXiv 2405.04434 section 2.1; torch_npu npu_fused_infer_attention_score with query_rope"
    ),
    inputs={
        "query_latent": TensorSpec(("tokens", "heads", "kv_lora"), FLOATS),
        "query_rope": TensorSpec(("tokens", "heads", "rotary"), like="query_latent"),
        "latent_cache": TensorSpec(("blocks", "page", 1, "kv_lora"), like="query_latent"),
        "rope_cache": TensorSpec(("blocks", "page", 1, "rotary"), like="query_latent"),
        "block_table": TensorSpec(("requests", "max_blocks"), INTS),
    },
    outputs={"out": TensorSpec(("tokens", "heads", "kv_lora"), like="query_latent")},
    npu_operators=("npu::npu_fused_infer_attention_score",),
    npu_limits={
        "dtype": NpuLimit(_DOC, allowed=HALVES),
        "page_size": NpuLimit(_DOC, allowed=(128,)),
        "kv_lora": NpuLimit(_DOC, allowed=(512,)),
        "rotary_dim": NpuLimit(_DOC, allowed=(64,)),
        "heads": NpuLimit(_DOC, allowed=(1, 2, 4, 8, 16, 32, 64, 128)),
        "query_len": NpuLimit(_DOC, maximum=16),
    },
    tolerance=Tolerance(
        "float32 sums in another order; the NPU rounds the probabilities to 16 bits before the"
        " product with the latents",
        float32=2e-5,
        bfloat16=2**-6,
        float16=2**-9,
    ),
    values=lambda arguments: check_lens("paged_mla_attention", arguments),
)


def reference(
    query_latent: torch.Tensor,
    query_rope: torch.Tensor,
    latent_cache: torch.Tensor,
    rope_cache: torch.Tensor,
    block_table: torch.Tensor,
    query_lens: Sequence[int],
    kv_lens: Sequence[int],
    scale: float,
) -> torch.Tensor:
    """Causal attention of ragged requests in the latent space.

    query_latent [tokens, heads, kv_lora] (the non-rotary query times W_UK) and query_rope [tokens,
    heads, rotary]: the new tokens of all requests, one request after the other; rows behind
    sum(query_lens) are padding and give zeros. latent_cache [blocks, page, 1, kv_lora] and
    rope_cache [blocks, page, 1, rotary] hold the new tokens already. block_table [requests,
    max_blocks]. query_lens, kv_lens: new tokens, and tokens in the cache, of each request.
    Query i of a request sees its first kv_len - query_len + i + 1 tokens.
    Returns [tokens, heads, kv_lora]. Unused cache slots are never read.
    """
    out = torch.empty_like(query_latent, memory_format=torch.contiguous_format)
    for batch in padded_batches(query_lens, kv_lens, causal=True):
        slots = key_slots(batch, block_table, latent_cache.shape[1])
        result = _attend(
            query_latent[batch.query_rows].float(),
            query_rope[batch.query_rows].float(),
            gather_rows(latent_cache, slots).squeeze(2).float(),
            gather_rows(rope_cache, slots).squeeze(2).float(),
            batch.visible,
            scale,
        )
        scatter_result(out, batch, result)
    out[sum(query_lens) :] = 0
    return out


def _attend(query_latent, query_rope, latent, rope, visible, scale) -> torch.Tensor:
    """query_* [b, q, heads, dim], latent and rope [b, s, dim] -> [b, q, heads, kv_lora]."""
    batch, queries, heads, kv_lora = query_latent.shape
    chunk = min(max(_MAX_SCORES // (batch * heads * latent.shape[1]), 1), _MAX_CHUNK)
    parts = []
    for start in range(0, queries, chunk):
        part = visible[:, start : start + chunk]
        seen = int(part.max())
        rows = part.shape[1] * heads
        keys = latent[:, :seen]
        scores = torch.bmm(
            query_latent[:, start : start + chunk].reshape(batch, rows, kv_lora),
            keys.transpose(1, 2),
        )
        scores.baddbmm_(
            query_rope[:, start : start + chunk].reshape(batch, rows, -1),
            rope[:, :seen].transpose(1, 2),
            beta=scale,
            alpha=scale,
        )
        mask = additive_mask(part, seen)
        if mask is not None:
            scores.view(batch, -1, heads, seen).add_(mask.unsqueeze(2))
        parts.append(torch.bmm(scores.softmax(-1), keys).view(batch, -1, heads, kv_lora))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def host(
    query_latent, query_rope, latent_cache, rope_cache, block_table, query_lens, kv_lens, scale
):
    return attention.paged_attention(
        (query_latent, query_rope),
        (latent_cache, rope_cache),
        latent_cache,
        block_table,
        query_lens,
        kv_lens,
        scale,
        causal=True,
    )


def check_npu_limits(
    dtype: torch.dtype, page: int, heads: int, kv_lora: int, rotary: int, longest_query: int
) -> None:
    SPEC.require_npu("dtype", dtype)
    SPEC.require_npu("page_size", page)
    SPEC.require_npu("heads", heads)
    SPEC.require_npu("kv_lora", kv_lora)
    SPEC.require_npu("rotary_dim", rotary)
    SPEC.require_npu("query_len", longest_query)


def npu(
    query_latent, query_rope, latent_cache, rope_cache, block_table, query_lens, kv_lens, scale
):
    tokens, heads, kv_lora = query_latent.shape
    page, rotary = rope_cache.shape[1], rope_cache.shape[3]
    longest = max(query_lens, default=0)
    check_npu_limits(query_latent.dtype, page, heads, kv_lora, rotary, longest)
    SPEC.require_contiguous(latent_cache=latent_cache, rope_cache=rope_cache)
    requests = drop_empty_requests(query_latent, block_table, query_lens, kv_lens)
    if not requests.query_lens:
        return torch.zeros_like(query_latent)
    # The operator takes no query lengths in this mode. Padding before the real queries keeps the
    # bottom-right causal mask right for them.
    latents = latent_cache.view(-1, page, kv_lora)
    mask = {"sparse_mode": 3, "atten_mask": causal_mask(query_latent.device)} if longest > 1 else {}
    out = torch.ops.npu.npu_fused_infer_attention_score(
        requests.padded_left(),
        latents,
        latents,
        query_rope=requests.padded_left(query_rope[: sum(query_lens)].contiguous()),
        key_rope=rope_cache.view(-1, page, rotary),
        num_heads=heads,
        num_key_value_heads=1,
        input_layout="BSND",
        block_table=requests.block_table,
        block_size=page,
        scale=scale,
        actual_seq_lengths_kv=list(requests.kv_lens),
        **mask,
    )[0]
    return restore_rows(requests.unpadded_left(out), tokens)


def _case(label: str, model: MlaModel, query_lens: list[int], kv_lens: list[int]) -> ContractCase:
    def build(device, dtype):
        def tensor(*shape, dtype=dtype):
            return torch.zeros(*shape, dtype=dtype, device=device)

        tokens = sum(query_lens)
        return {
            "query_latent": tensor(tokens, model.heads, model.kv_lora),
            "query_rope": tensor(tokens, model.heads, model.rope),
            "latent_cache": tensor(64, 128, 1, model.kv_lora),
            "rope_cache": tensor(64, 128, 1, model.rope),
            "block_table": tensor(len(query_lens), 16, dtype=torch.int32),
            "query_lens": query_lens,
            "kv_lens": kv_lens,
            "scale": (model.nope + model.rope) ** -0.5,
        }

    return ContractCase(label, build)


CONTRACT = (
    _case("tiny-deepseek-v3 decode", TINY_DEEPSEEK, [1, 1], [5, 300]),
    _case("DeepSeek-V3 decode", DEEPSEEK_V3, [1] * 4, [100, 7, 2048, 129]),
    _case("DeepSeek-V3 verify", DEEPSEEK_V3, [2, 2, 1], [100, 7, 2048]),
)

paged_mla_attention = Operator(SPEC, reference, npu, CONTRACT, host)
