"""Causal attention with grouped queries over a paged key/value cache."""

from collections.abc import Sequence

import torch

from sglang_ascend.native import attention
from sglang_ascend.ops.contract_shapes import SMOLLM2_135M
from sglang_ascend.ops.npu_attention import (
    NpuRequests,
    causal_mask,
    drop_empty_requests,
    restore_rows,
)
from sglang_ascend.ops.padded_attention import attend
from sglang_ascend.ops.paged import gather_rows, key_slots
from sglang_ascend.ops.ragged import check_lens, padded_batches, scatter_result
from sglang_ascend.ops.spec import (
    FLOATS,
    HALVES,
    INTS,
    ContractCase,
    NpuLimit,
    Operator,
    OperatorError,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)

_DOC = "aclnnFusedInferAttentionScoreV4"

SPEC = OperatorSpec(
    name="paged_gqa_attention",
    summary="softmax(scale * query keys^T) values per request, keys read through the block table.",
    source="arXiv 2305.13245 (GQA); torch_npu npu_fused_infer_attention_score",
    inputs={
        "query": TensorSpec(("tokens", "heads", "key_dim"), FLOATS),
        "key_cache": TensorSpec(("blocks", "page", "kv_heads", "key_dim"), like="query"),
        "value_cache": TensorSpec(("blocks", "page", "kv_heads", "value_dim"), like="query"),
        "block_table": TensorSpec(("requests", "max_blocks"), INTS),
    },
    outputs={"out": TensorSpec(("tokens", "heads", "value_dim"), like="query")},
    npu_operators=("npu::npu_fused_infer_attention_score",),
    npu_limits={
        "dtype": NpuLimit(_DOC, allowed=HALVES),
        "page_size": NpuLimit(_DOC, allowed=(128, 512)),
        "head_dim": NpuLimit(_DOC, multiple_of=16),
        "largest head_dim": NpuLimit(_DOC, maximum=512),
        "heads": NpuLimit(_DOC, maximum=256),
        "queries per kv head": NpuLimit(_DOC, maximum=64),
    },
    tolerance=Tolerance(
        "float32 sums in another order; the NPU rounds the probabilities to 16 bits before the"
        " product with the values",
        float32=2e-5,
        bfloat16=2**-6,
        float16=2**-9,
    ),
    values=lambda arguments: check_arguments(arguments),
)


def check_arguments(arguments) -> None:
    check_lens(SPEC.name, arguments)
    heads, kv_heads = arguments["query"].shape[1], arguments["key_cache"].shape[2]
    if heads % kv_heads:
        raise OperatorError(
            f"{SPEC.name}: heads must be a multiple of kv_heads {kv_heads}, got {heads}"
        )


def reference(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    query_lens: Sequence[int],
    kv_lens: Sequence[int],
    scale: float,
    causal: bool = True,
) -> torch.Tensor:
    """Attention of ragged requests: decode, verify, and prefill with a cached prefix.

    query [tokens, heads, key_dim]: the new tokens of all requests, one request after the other;
    rows behind sum(query_lens) are padding and give zeros. key_cache [blocks, page, kv_heads,
    key_dim] and value_cache [blocks, page, kv_heads, value_dim] hold the new tokens already and may
    be strided views. block_table [requests, max_blocks]. query_lens, kv_lens: new tokens, and
    tokens in the cache, of each request; a request without new tokens is allowed.
    Causal means that query i of a request sees its first kv_len - query_len + i + 1 tokens.
    Returns [tokens, heads, value_dim] in the dtype of query. Unused cache slots are never read.
    """
    out = query.new_empty(query.shape[0], query.shape[1], value_cache.shape[3])
    for batch in padded_batches(query_lens, kv_lens, causal):
        slots = key_slots(batch, block_table, key_cache.shape[1])
        result = attend(
            query[batch.query_rows].float(),
            gather_rows(key_cache, slots).float(),
            gather_rows(value_cache, slots).float(),
            batch.visible,
            scale,
        )
        scatter_result(out, batch, result)
    out[sum(query_lens) :] = 0
    return out


def host(
    query, key_cache, value_cache, block_table, query_lens, kv_lens, scale, causal: bool = True
):
    return attention.paged_attention(
        (query,), (key_cache,), value_cache, block_table, query_lens, kv_lens, scale, causal
    )


def check_npu_limits(
    dtype: torch.dtype, page: int, heads: int, kv_heads: int, key_dim: int, value_dim: int
) -> None:
    SPEC.require_npu("dtype", dtype)
    SPEC.require_npu("page_size", page)
    for dim in (key_dim, value_dim):
        SPEC.require_npu("head_dim", dim)
        SPEC.require_npu("largest head_dim", dim)
    SPEC.require_npu("heads", heads)
    SPEC.require_npu("queries per kv head", heads // kv_heads)
    if key_dim != value_dim:
        raise OperatorError(
            f"{SPEC.name} on npu: value_dim is {value_dim}, allowed is key_dim {key_dim} ({_DOC})"
        )


def npu(query, key_cache, value_cache, block_table, query_lens, kv_lens, scale, causal=True):
    tokens, heads, dim = query.shape
    page, kv_heads = key_cache.shape[1], key_cache.shape[2]
    check_npu_limits(query.dtype, page, heads, kv_heads, dim, value_cache.shape[3])
    SPEC.require_contiguous(key_cache=key_cache, value_cache=value_cache)
    requests = drop_empty_requests(query, block_table, query_lens, kv_lens)
    if not requests.query_lens:
        return query.new_zeros(tokens, heads, dim)
    # Single queries go through the decode kernel. Prefill without padding (TND) exists for head_dim
    # 128; other sizes are padded to the longest request.
    ragged = dim == 128 and query.dtype == torch.bfloat16 and max(requests.query_lens) > 1
    padded = requests.query if ragged else requests.padded_right()
    out = torch.ops.npu.npu_fused_infer_attention_score(
        padded,
        key_cache.view(-1, page, kv_heads * dim),
        value_cache.view(-1, page, kv_heads * dim),
        num_heads=heads,
        num_key_value_heads=kv_heads,
        input_layout="TND" if ragged else "BSND",
        block_table=requests.block_table,
        block_size=page,
        scale=scale,
        actual_seq_lengths=requests.query_ends() if ragged else list(requests.query_lens),
        actual_seq_lengths_kv=list(requests.kv_lens),
        **_mask_arguments(requests, causal, query.device),
    )[0]
    return restore_rows(out if ragged else requests.unpadded_right(out), tokens)


def _mask_arguments(requests: NpuRequests, causal: bool, device: torch.device) -> dict:
    if not causal or max(requests.query_lens) <= 1:
        return {"sparse_mode": 0}
    return {"sparse_mode": 3, "atten_mask": causal_mask(device)}


def _case(label: str, query_lens: list[int], kv_lens: list[int]) -> ContractCase:
    def build(device, dtype):
        def tensor(*shape, dtype=dtype):
            return torch.zeros(*shape, dtype=dtype, device=device)

        model = SMOLLM2_135M
        cache = (64, 128, model.kv_heads, model.head_dim)
        return {
            "query": tensor(sum(query_lens), model.heads, model.head_dim),
            "key_cache": tensor(*cache),
            "value_cache": tensor(*cache),
            "block_table": tensor(len(query_lens), 16, dtype=torch.int32),
            "query_lens": query_lens,
            "kv_lens": kv_lens,
            "scale": model.head_dim**-0.5,
        }

    return ContractCase(label, build)


CONTRACT = (
    _case("SmolLM2-135M decode", [1] * 4, [100, 7, 2048, 129]),
    _case("SmolLM2-135M prefill with prefix", [128, 1, 40], [640, 1, 40]),
)

paged_gqa_attention = Operator(SPEC, reference, npu, CONTRACT, host)
