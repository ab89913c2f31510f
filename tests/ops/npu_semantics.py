"""torch_npu operators as their documentation describes them, in plain torch on the CPU.

This stands for the documentation, not for a chip: it shows that our calls, with their layouts,
masks and index conventions, mean what the references compute. Schemas are those of torch_npu
2.13.0, less the options that no call passes.
"""

from __future__ import annotations

import torch

SCHEMAS = (
    "npu_rms_norm(Tensor input, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)",
    "npu_add_rms_norm(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06)"
    " -> (Tensor, Tensor, Tensor)",
    "npu_swiglu(Tensor input, int dim=-1) -> Tensor",
    "npu_rotary_mul(Tensor input, Tensor r1, Tensor r2, str rotary_mode='half', Tensor?"
    " rotate=None)"
    " -> Tensor",
    "npu_interleave_rope(Tensor x, Tensor cos, Tensor sin) -> Tensor",
    "npu_scatter_pa_kv_cache(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!)"
    " value_cache,"
    " Tensor slot_mapping, *, Tensor? compress_lens=None, Tensor? compress_seq_offsets=None,"
    " Tensor? seq_lens=None, str? cache_mode='PA_NZ') -> ()",
    "npu_kv_rmsnorm_rope_cache(Tensor kv, Tensor gamma, Tensor cos, Tensor sin, Tensor index,"
    " Tensor k_cache, Tensor ckv_cache, *, Tensor? k_rope_scale=None, Tensor? c_kv_scale=None,"
    " Tensor? k_rope_offset=None, Tensor? c_kv_offset=None, Tensor? v=None, float epsilon=1e-05,"
    " str cache_mode='Norm', bool is_output_kv=False) -> (Tensor, Tensor, Tensor, Tensor)",
    "npu_fused_infer_attention_score(Tensor query, Tensor key, Tensor value, *,"
    " Tensor? atten_mask=None, SymInt[]? actual_seq_lengths=None, SymInt[]?"
    " actual_seq_lengths_kv=None,"
    " Tensor? block_table=None, Tensor? query_rope=None, Tensor? key_rope=None, int num_heads=1,"
    " float scale=1., str input_layout='BSH', int num_key_value_heads=0, int sparse_mode=0,"
    " int block_size=0) -> (Tensor, Tensor)",
    "npu_moe_gating_top_k(Tensor x, int k, *, Tensor? bias=None, int k_group=1, int group_count=1,"
    " int group_select_mode=0, int renorm=0, int norm_type=0, bool out_flag=False,"
    " float routed_scaling_factor=1., float eps=1e-20) -> (Tensor, Tensor, Tensor)",
    "npu_moe_gating_top_k_softmax_v2(Tensor x, *, int k=1, Tensor? finished=None, int? renorm=0,"
    " bool? output_softmax=False) -> (Tensor, Tensor, Tensor)",
    "npu_moe_init_routing_v2(Tensor x, Tensor expert_idx, *, Tensor? scale=None, Tensor?"
    " offset=None,"
    " int active_num=-1, int expert_capacity=-1, int expert_num=-1, int drop_pad_mode=0,"
    " int expert_tokens_num_type=0, bool expert_tokens_num_flag=False, int quant_mode=-1,"
    " int[2] active_expert_range=[], int row_idx_type=0) -> (Tensor, Tensor, Tensor, Tensor)",
    "npu_grouped_matmul(Tensor[] x, Tensor[] weight, *, Tensor? group_list=None, int? split_item=0,"
    " int? group_type=None, int? group_list_type=0) -> Tensor[]",
    "npu_moe_finalize_routing(Tensor expanded_permuted_rows, Tensor? skip1, Tensor? skip2,"
    " Tensor? bias,"
    " Tensor? scales, Tensor expanded_src_to_dst_row, Tensor? export_for_source_row,"
    " int? drop_pad_mode=0, int? k=1) -> Tensor",
    "npu_top_k_top_p(Tensor logits, Tensor? p=None, Tensor? k=None) -> Tensor",
    "npu_mla_prolog_v3(Tensor token_x, Tensor weight_dq, Tensor weight_uq_qr, Tensor weight_uk,"
    " Tensor weight_dkv_kr, Tensor rmsnorm_gamma_cq, Tensor rmsnorm_gamma_ckv, Tensor rope_sin,"
    " Tensor rope_cos, Tensor(a!) kv_cache, Tensor(b!) kr_cache, *, Tensor? cache_index=None,"
    " float rmsnorm_epsilon_cq=1e-05, float rmsnorm_epsilon_ckv=1e-05, str cache_mode='PA_BSND')"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)


def define(library: torch.library.Library) -> None:
    """Define every operator of `SCHEMAS` in the library `npu`, implemented for the CPU."""
    for schema in SCHEMAS:
        library.define(schema)
        name = schema.split("(")[0]
        library.impl(name, globals()[name], "CPU")


def _norm(x, gamma, epsilon):
    x = x.float()
    return x / (x.pow(2).mean(-1, keepdim=True) + epsilon).sqrt() * gamma.float()


def npu_rms_norm(input, gamma, epsilon=1e-6):
    return _norm(input, gamma, epsilon).to(input.dtype), torch.empty(0)


def npu_add_rms_norm(x1, x2, gamma, epsilon=1e-6):
    total = x1.float() + x2.float()
    return _norm(total, gamma, epsilon).to(x1.dtype), torch.empty(0), total.to(x1.dtype)


def npu_swiglu(input, dim=-1):
    gate, up = input.float().chunk(2, dim)
    return (gate / (1 + (-gate).exp()) * up).to(input.dtype)


def _rotate_half(x):
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def npu_rotary_mul(input, r1, r2, rotary_mode="half", rotate=None):
    assert input.dim() == 4 and r1.shape == r2.shape and r1.shape[-1] == input.shape[-1] < 896
    x = input.float()
    if rotary_mode == "half":
        batch, sequence, heads, _ = input.shape
        assert max(batch, heads) < 1000 and r1.shape[:3] in {(1, sequence, 1), (batch, sequence, 1)}
        turned = _rotate_half(x)
    else:
        sequence, batch, heads, _ = input.shape
        assert (
            rotary_mode == "interleave"
            and batch * heads < 1000
            and r1.shape[:3] == (sequence, 1, 1)
        )
        turned = torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)
    return (x * r1.float() + turned * r2.float()).to(input.dtype)


def npu_interleave_rope(x, cos, sin):
    assert x.dim() == 4 and x.shape[-1] == 64 and x.is_contiguous()
    batch, _, sequence, _ = x.shape
    assert cos.shape == sin.shape == (batch, 1, sequence, 64) and cos.is_contiguous()
    parts = x.float().unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
    return (parts * cos.float() + _rotate_half(parts) * sin.float()).to(x.dtype)


def npu_scatter_pa_kv_cache(
    key, value, key_cache, value_cache, slot_mapping, *, cache_mode="PA_NZ", **_
):
    assert cache_mode == "Norm" and key_cache.is_contiguous() and value_cache.is_contiguous()
    for cache, rows in ((key_cache, key), (value_cache, value)):
        for slot, row in zip(slot_mapping.tolist(), rows):
            if slot >= 0:
                cache.view(-1, *cache.shape[2:])[slot] = row


def npu_kv_rmsnorm_rope_cache(
    kv, gamma, cos, sin, index, k_cache, ckv_cache, *, epsilon=1e-5, cache_mode="Norm", **_
):
    batch, one, sequence, width = kv.shape
    assert one == 1 and width == 576 and gamma.shape == (512,) and cache_mode == "PA"
    assert cos.shape == sin.shape == (batch, 1, sequence, 64) and index.dtype == torch.int64
    latent = _norm(kv[..., :512], gamma, epsilon).to(kv.dtype).view(-1, 512)
    key = npu_interleave_rope(kv[..., 512:].contiguous(), cos, sin).view(-1, 64)
    for slot, row, rope in zip(index.tolist(), latent, key):
        if slot >= 0:
            ckv_cache.view(-1, 512)[slot] = row
            k_cache.view(-1, 64)[slot] = rope
    return tuple(torch.empty(0) for _ in range(4))


def _attention(query, keys, values, visible, scale):
    """query [q, heads, dim], keys and values [s, kv_heads, dim]; query i sees visible[i] keys."""
    group = query.shape[1] // keys.shape[1]
    keys, values = (x.float().repeat_interleave(group, 1) for x in (keys, values))
    scores = torch.einsum("qhd,shd->hqs", query.float(), keys) * scale
    hidden = torch.arange(keys.shape[0])[None, :] >= visible[:, None]
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    # A query that sees nothing gives no meaningful row.
    return torch.einsum("hqs,shd->qhd", weights, values)


def npu_fused_infer_attention_score(
    query,
    key,
    value,
    *,
    atten_mask=None,
    actual_seq_lengths=None,
    actual_seq_lengths_kv=None,
    block_table=None,
    query_rope=None,
    key_rope=None,
    num_heads=1,
    scale=1.0,
    input_layout="BSH",
    num_key_value_heads=0,
    sparse_mode=0,
    block_size=0,
):
    assert all(x is None or x.is_contiguous() for x in (query, key, value, query_rope, key_rope))
    latent = query.shape[-1] == 512 and query_rope is not None
    heads, kv_heads = num_heads, num_key_value_heads
    if input_layout == "TND":
        assert query.dtype == torch.bfloat16 and query.shape[1:] == (heads, 128)
        ends, kv_ends = list(actual_seq_lengths), list(actual_seq_lengths_kv)
        requests = [query[start:end] for start, end in zip([0, *ends], ends)]
        ropes = None
        if query_rope is not None:
            ropes = [query_rope[start:end] for start, end in zip([0, *ends], ends)]
    else:
        assert input_layout == "BSND" and block_table is not None
        requests, ropes = list(query), None if query_rope is None else list(query_rope)
        if latent:
            assert actual_seq_lengths is None and query.shape[1] <= 16 and block_size == 128
            assert heads in (1, 2, 4, 8, 16, 32, 64, 128) and query_rope.shape[-1] == 64
    out = torch.full_like(query, float("nan"))
    rows = list(out) if input_layout == "BSND" else [out[s:e] for s, e in zip([0, *ends], ends)]
    for b, one in enumerate(requests):
        if block_table is not None:
            length = actual_seq_lengths_kv[b]
            blocks = block_table[b, : -(-length // block_size)].long()
            assert key.shape[1] == block_size
            keys, values = (
                x[blocks].flatten(0, 1)[:length].view(length, kv_heads, -1) for x in (key, value)
            )
            rope = (
                None
                if key_rope is None
                else key_rope[blocks].flatten(0, 1)[:length].view(length, 1, -1)
            )
        else:
            span = slice(0 if b == 0 else kv_ends[b - 1], kv_ends[b])
            keys, values = key[span], value[span]
            rope, length = None if key_rope is None else key_rope[span], keys.shape[0]
        queries = one.shape[0]
        if input_layout == "BSND" and actual_seq_lengths is not None:
            queries = actual_seq_lengths[b]
        real = one[:queries]
        if rope is not None:
            real = torch.cat((real, ropes[b][:queries]), -1)
            keys = torch.cat((keys, rope), -1)
        visible = torch.full((queries,), length)
        if sparse_mode == 3:
            assert atten_mask.shape == (2048, 2048) and atten_mask[0, 1] and not atten_mask[1, 1]
            visible = length - queries + 1 + torch.arange(queries)
        else:
            assert sparse_mode == 0 and atten_mask is None
        rows[b][:queries] = _attention(real, keys, values, visible, scale).to(query.dtype)
    return out, torch.empty(0)


def npu_moe_gating_top_k(
    x,
    k,
    *,
    bias=None,
    k_group=1,
    group_count=1,
    group_select_mode=0,
    renorm=0,
    norm_type=0,
    out_flag=False,
    routed_scaling_factor=1.0,
    eps=1e-20,
):
    assert (
        norm_type == 1 and renorm == 0 and group_select_mode == 1 and x.shape[1] // group_count > 2
    )
    scores = x.float().sigmoid()
    weights, ids = [], []
    for score in scores:
        biased = score + bias.float()
        groups = biased.view(group_count, -1)
        best = groups.topk(2, -1).values.sum(-1).topk(k_group).indices
        allowed = torch.full_like(groups, float("-inf"))
        allowed[best] = groups[best]
        chosen = allowed.flatten().topk(k).indices
        weights.append(score[chosen] / (score[chosen].sum() + eps) * routed_scaling_factor)
        ids.append(chosen.int())
    return torch.stack(weights).to(x.dtype), torch.stack(ids), torch.empty(0)


def npu_moe_gating_top_k_softmax_v2(x, *, k=1, finished=None, renorm=0, output_softmax=False):
    if renorm:
        values, ids = x.topk(k, -1)
        return values.softmax(-1), ids.int(), torch.empty(0)
    values, ids = x.softmax(-1).topk(k, -1)
    return values, ids.int(), torch.empty(0)


def npu_moe_init_routing_v2(
    x,
    expert_idx,
    *,
    active_num=-1,
    expert_num=-1,
    drop_pad_mode=0,
    expert_tokens_num_type=0,
    expert_tokens_num_flag=False,
    quant_mode=-1,
    active_expert_range=(),
    row_idx_type=0,
    **_,
):
    assert expert_idx.dtype == torch.int32 and active_num == expert_idx.numel()
    assert drop_pad_mode == 0 and expert_tokens_num_type == 1 and expert_tokens_num_flag
    assert quant_mode == -1 and row_idx_type == 0
    assert expert_idx.numel() == 0 or 0 <= expert_idx.min() <= expert_idx.max() < expert_num
    start, end = active_expert_range
    assert 0 <= start < end <= expert_num
    top_k = expert_idx.shape[1]
    rows = torch.full((expert_idx.numel(), x.shape[1]), float("nan"), dtype=x.dtype)
    index = torch.full((expert_idx.numel(),), -1, dtype=torch.int32)
    flat = expert_idx.flatten().tolist()
    order = sorted((expert, pair) for pair, expert in enumerate(flat) if start <= expert < end)
    for row, (_, pair) in enumerate(order):
        rows[row] = x[pair // top_k]
        index[pair] = row
    counts = torch.tensor([flat.count(expert) for expert in range(start, end)], dtype=torch.int64)
    return rows, index, counts, torch.empty(0)


def npu_grouped_matmul(
    x, weight, *, group_list=None, split_item=0, group_type=None, group_list_type=0
):
    assert split_item == 3 and group_type == 0 and group_list_type == 1
    y = torch.full((x[0].shape[0], weight[0].shape[2]), float("nan"), dtype=x[0].dtype)
    start = 0
    for expert, count in enumerate(group_list.tolist()):
        rows = slice(start, start + count)
        y[rows] = (x[0][rows].float() @ weight[0][expert].float()).to(y.dtype)
        start += count
    return [y]


def npu_moe_finalize_routing(
    expanded_permuted_rows,
    skip1,
    skip2,
    bias,
    scales,
    expanded_src_to_dst_row,
    export_for_source_row,
    drop_pad_mode=0,
    k=1,
):
    assert drop_pad_mode == 3 and expanded_permuted_rows.dim() == 3
    assert scales.dtype == expanded_permuted_rows.dtype
    rows = expanded_permuted_rows.flatten(0, 1).float()
    y = torch.zeros(scales.shape[0], rows.shape[1])
    for pair, row in enumerate(expanded_src_to_dst_row.tolist()):
        if row >= 0:
            y[pair // scales.shape[1]] += rows[row] * scales.flatten()[pair].float()
    return y.to(expanded_permuted_rows.dtype)


def npu_top_k_top_p(logits, p=None, k=None):
    out = logits.clone()
    for b, row in enumerate(out):
        order = row.argsort(descending=True)
        if k is not None:
            assert 1 <= k[b] <= 1024
            row[order[int(k[b]) :]] = float("-inf")
        if p is not None:
            ranked = row.softmax(-1)[order]
            row[order[(ranked.cumsum(0) - ranked) > p[b]]] = float("-inf")
    return out


def npu_mla_prolog_v3(
    token_x,
    weight_dq,
    weight_uq_qr,
    weight_uk,
    weight_dkv_kr,
    rmsnorm_gamma_cq,
    rmsnorm_gamma_ckv,
    rope_sin,
    rope_cos,
    kv_cache,
    kr_cache,
    *,
    cache_index=None,
    rmsnorm_epsilon_cq=1e-5,
    rmsnorm_epsilon_ckv=1e-5,
    cache_mode="PA_BSND",
):
    assert cache_mode == "PA_BSND" and (cache_index >= 0).all()
    tokens, dtype = token_x.shape[0], token_x.dtype
    heads, nope, _ = weight_uk.shape
    cos, sin = (table[:, None, None].contiguous() for table in (rope_cos, rope_sin))
    latent = _norm(
        (token_x.float() @ weight_dq.float()).to(dtype), rmsnorm_gamma_cq, rmsnorm_epsilon_cq
    )
    query = (latent.to(dtype).float() @ weight_uq_qr.float()).to(dtype).view(tokens, heads, -1)
    absorbed = torch.einsum("thn,hnl->thl", query[..., :nope].float(), weight_uk.float())
    rotary = npu_interleave_rope(query[..., nope:].unsqueeze(2).contiguous(), cos, sin).squeeze(2)
    kv = (token_x.float() @ weight_dkv_kr.float()).to(dtype)[:, None, None]
    npu_kv_rmsnorm_rope_cache(
        kv,
        rmsnorm_gamma_ckv,
        cos,
        sin,
        cache_index,
        kr_cache,
        kv_cache,
        epsilon=rmsnorm_epsilon_ckv,
        cache_mode="PA",
    )
    return absorbed.to(dtype), rotary, *(torch.empty(0) for _ in range(3))
