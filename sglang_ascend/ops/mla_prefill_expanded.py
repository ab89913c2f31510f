"""Prefill of multi-head latent attention with keys and values expanded from the cached latents."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3, TINY_DEEPSEEK, MlaModel
from sglang_ascend.ops.npu_attention import causal_mask, drop_empty_requests, restore_rows
from sglang_ascend.ops.padded_attention import attend
from sglang_ascend.ops.paged import gather_rows, key_slots
from sglang_ascend.ops.ragged import check_lens, padded_batches, scatter_result
from sglang_ascend.ops.spec import (
    FLOATS,
    INTS,
    ContractCase,
    NpuLimit,
    Operator,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)

_DOC = "aclnnFusedInferAttentionScoreV4, MLA with query dim 128, TND"
# The one head size that the NPU operator has for expanded keys and values.
_NPU_HEAD_DIM = 128

SPEC = OperatorSpec(
    name="mla_prefill_expanded",
    summary="Causal attention with keys latent W_UK | rope and values latent W_UV, per request.",
    source=(
        "arXiv 2405.04434 section 2.1; torch_npu npu_fused_infer_attention_score with query_rope"
    ),
    inputs={
        "query_nope": TensorSpec(("tokens", "heads", "nope"), FLOATS),
        "query_rope": TensorSpec(("tokens", "heads", "rotary"), like="query_nope"),
        "latent_cache": TensorSpec(("blocks", "page", 1, "kv_lora"), like="query_nope"),
        "rope_cache": TensorSpec(("blocks", "page", 1, "rotary"), like="query_nope"),
        "block_table": TensorSpec(("requests", "max_blocks"), INTS),
        "w_uk": TensorSpec(("heads", "nope", "kv_lora"), like="query_nope"),
        "w_uv": TensorSpec(("heads", "kv_lora", "value_dim"), like="query_nope"),
    },
    outputs={"out": TensorSpec(("tokens", "heads", "value_dim"), like="query_nope")},
    npu_operators=("npu::npu_fused_infer_attention_score",),
    npu_limits={
        "dtype": NpuLimit(_DOC, allowed=(torch.bfloat16,)),
        "rotary_dim": NpuLimit(_DOC, allowed=(64,)),
        "nope_dim": NpuLimit(_DOC + ", smaller sizes are padded with zeros", maximum=_NPU_HEAD_DIM),
        "value_dim": NpuLimit(
            _DOC + ", smaller sizes are padded with zeros", maximum=_NPU_HEAD_DIM
        ),
    },
    tolerance=Tolerance(
        "float32 sums in another order; the NPU rounds keys, values and probabilities to 16 bits",
        float32=2e-5,
        bfloat16=2**-5,
        float16=2**-8,
    ),
    values=lambda arguments: check_lens("mla_prefill_expanded", arguments),
)


def reference(
    query_nope: torch.Tensor,
    query_rope: torch.Tensor,
    latent_cache: torch.Tensor,
    rope_cache: torch.Tensor,
    block_table: torch.Tensor,
    query_lens: Sequence[int],
    kv_lens: Sequence[int],
    w_uk: torch.Tensor,
    w_uv: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Causal attention of ragged requests with a cached prefix.

    query_nope [tokens, heads, nope] and query_rope [tokens, heads, rotary]: the new tokens of all
    requests, one request after the other; rows behind sum(query_lens) are padding and give zeros.
    latent_cache [blocks, page, 1, kv_lora] and rope_cache [blocks, page, 1, rotary] hold the new
    tokens already. block_table [requests, max_blocks]. w_uk [heads, nope, kv_lora] and w_uv [heads,
    kv_lora, value_dim]: up-projections. Returns [tokens, heads, value_dim].
    """
    heads, kv_lora, value_dim = w_uv.shape
    nope, rotary = w_uk.shape[1], query_rope.shape[2]
    # A value as wide as a key keeps the attention in one fused pass; the zeros are cut off again.
    padding = max(nope + rotary - value_dim, 0)
    expand_keys = w_uk.reshape(heads * nope, kv_lora).float().t()
    expand_values = F.pad(w_uv.float(), (0, padding)).transpose(0, 1).reshape(kv_lora, -1)
    out = query_nope.new_empty(query_nope.shape[0], heads, value_dim)
    for batch in padded_batches(query_lens, kv_lens, causal=True):
        slots = key_slots(batch, block_table, latent_cache.shape[1])
        latent = gather_rows(latent_cache, slots).squeeze(2).float()
        rope = gather_rows(rope_cache, slots).float().expand(-1, -1, heads, -1)
        keys = torch.cat(((latent @ expand_keys).unflatten(-1, (heads, nope)), rope), dim=-1)
        values = (latent @ expand_values).unflatten(-1, (heads, -1))
        query = torch.cat(
            (query_nope[batch.query_rows], query_rope[batch.query_rows]), dim=-1
        ).float()
        result = attend(query, keys, values, batch.visible, scale)
        scatter_result(out, batch, result[..., :value_dim])
    out[sum(query_lens) :] = 0
    return out


def check_npu_limits(dtype: torch.dtype, nope: int, rotary: int, value_dim: int) -> None:
    SPEC.require_npu("dtype", dtype)
    SPEC.require_npu("nope_dim", nope)
    SPEC.require_npu("rotary_dim", rotary)
    SPEC.require_npu("value_dim", value_dim)


def npu(
    query_nope,
    query_rope,
    latent_cache,
    rope_cache,
    block_table,
    query_lens,
    kv_lens,
    w_uk,
    w_uv,
    scale,
):
    tokens, heads, nope = query_nope.shape
    rotary, kv_lora, value_dim = query_rope.shape[2], w_uv.shape[1], w_uv.shape[2]
    check_npu_limits(query_nope.dtype, nope, rotary, value_dim)
    requests = drop_empty_requests(query_nope, block_table, query_lens, kv_lens)
    if not requests.query_lens:
        return query_nope.new_zeros(tokens, heads, value_dim)
    slots = requests.key_slots(latent_cache.shape[1])
    latent = latent_cache.view(-1, kv_lora).index_select(0, slots)
    rope = rope_cache.view(-1, 1, rotary).index_select(0, slots)
    keys = torch.einsum("sl,hnl->shn", latent, w_uk)
    values = torch.einsum("sl,hlv->shv", latent, w_uv)
    # Zeros in the head dimension change neither a score nor a kept output.
    out = torch.ops.npu.npu_fused_infer_attention_score(
        F.pad(requests.query, (0, _NPU_HEAD_DIM - nope)),
        F.pad(keys, (0, _NPU_HEAD_DIM - nope)),
        F.pad(values, (0, _NPU_HEAD_DIM - value_dim)),
        query_rope=query_rope[: sum(query_lens)].contiguous(),
        key_rope=rope.expand(-1, heads, -1).contiguous(),
        num_heads=heads,
        num_key_value_heads=heads,
        input_layout="TND",
        scale=scale,
        actual_seq_lengths=requests.query_ends(),
        actual_seq_lengths_kv=requests.kv_ends(),
        sparse_mode=3,
        atten_mask=causal_mask(query_nope.device),
    )[0]
    return restore_rows(out[..., :value_dim].contiguous(), tokens)


def _case(label: str, model: MlaModel, query_lens: list[int], kv_lens: list[int]) -> ContractCase:
    def build(device, dtype):
        def tensor(*shape, dtype=dtype):
            return torch.zeros(*shape, dtype=dtype, device=device)

        tokens = sum(query_lens)
        return {
            "query_nope": tensor(tokens, model.heads, model.nope),
            "query_rope": tensor(tokens, model.heads, model.rope),
            "latent_cache": tensor(64, 128, 1, model.kv_lora),
            "rope_cache": tensor(64, 128, 1, model.rope),
            "block_table": tensor(len(query_lens), 16, dtype=torch.int32),
            "query_lens": query_lens,
            "kv_lens": kv_lens,
            "w_uk": tensor(model.heads, model.nope, model.kv_lora),
            "w_uv": tensor(model.heads, model.kv_lora, model.value),
            "scale": (model.nope + model.rope) ** -0.5,
        }

    return ContractCase(label, build)


CONTRACT = (
    _case("tiny-deepseek-v3 prefill with prefix", TINY_DEEPSEEK, [64, 20], [192, 20]),
    _case("DeepSeek-V3 prefill", DEEPSEEK_V3, [256, 100], [256, 100]),
)

mla_prefill_expanded = Operator(SPEC, reference, npu, CONTRACT)
