"""Grouped-query flash attention over a paged cache: prefill with a cached prefix, and decode.

One program has a tile of up to ROWS rows, all of one key head, and walks over the pages of one
stretch of its keys with online softmax. In prefill a row is a query of one head; in decode the
queries of all heads that share the key head are rows of one tile, so that its keys are read once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton.language as tl

from sglang_ascend.kernels.attention_plan import AttentionPlan, plan_attention, tile_count
from sglang_ascend.kernels.cores import CUBE_CORES
from sglang_ascend.kernels.launching import Backend, choose, npu_backend
from sglang_ascend.kernels.spec import KernelConfig, KernelSpec, Work, ascend_kernel
from sglang_ascend.kernels.split_combine import combine
from sglang_ascend.ops.paged_gqa_attention import SPEC as REFERENCE
from sglang_ascend.ops.spec import NpuLimit, OperatorError

_HERE = "kernels/gqa_attention.py"
# Up to this many new tokens a request counts as decode or verification.
LONGEST_DECODE = 4
_NOTHING_SEEN = tl.constexpr(-1.0e30)


@ascend_kernel
def gqa_attention(
    query_ptr,  # bf16, row r of head h at element h * query_head + r * query_row
    key_ptr,  # [blocks, PAGE, kv_heads, DIM] bf16, last axis dense
    value_ptr,  # [blocks, PAGE, kv_heads, DIM] bf16, last axis dense
    block_table_ptr,  # [requests, table_row] int32
    tasks_ptr,  # [tasks, 8] int32, see attention_plan.py
    visible_ptr,  # [rows] int32: how many of its request's first keys a row sees
    out_ptr,  # bf16, output unless SPLIT, at the same places as the query
    part_ptr,  # [slots, heads, ROWS, DIM] fp32, output if SPLIT
    log_sum_ptr,  # [slots, heads, ROWS] fp32, output if SPLIT
    scale,
    query_head,
    query_row,
    key_block,
    key_token,
    key_head,
    value_block,
    value_token,
    value_head,
    table_row,
    heads,
    heads_per_key_head,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    PAGE: tl.constexpr,
    DIM: tl.constexpr,
    SPLIT: tl.constexpr,
):
    task = tasks_ptr + tl.program_id(0) * 8
    head = tl.program_id(1)
    request = tl.load(task)
    first = tl.load(task + 1)
    count = tl.load(task + 2)
    begin = tl.load(task + 3)
    end = tl.load(task + 4)
    slot = tl.load(task + 5)
    row = tl.arange(0, ROWS)
    column = tl.arange(0, DIM)
    key = tl.arange(0, KEYS)
    real = row < count
    at = first + row
    place = head * query_head + at[:, None] * query_row + column[None, :]
    query = tl.load(query_ptr + place, mask=real[:, None], other=0.0)
    visible = tl.load(visible_ptr + at, mask=real, other=0)
    keys_of_head = key_ptr + head // heads_per_key_head * key_head
    values_of_head = value_ptr + head // heads_per_key_head * value_head
    top = tl.full((ROWS,), _NOTHING_SEEN, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    result = tl.zeros((ROWS, DIM), tl.float32)
    for start in range(begin, end, KEYS):
        # A cache may have more than 2^31 elements.
        block = tl.load(block_table_ptr + request * table_row + start // PAGE).to(tl.int64)
        token = (start % PAGE + key)[:, None]
        inside = (start + key < end)[:, None]
        keys = tl.load(
            keys_of_head + block * key_block + token * key_token + column[None, :],
            mask=inside,
            other=0.0,
        )
        values = tl.load(
            values_of_head + block * value_block + token * value_token + column[None, :],
            mask=inside,
            other=0.0,
        )
        sees = (start + key)[None, :] < visible[:, None]
        scores = tl.where(sees, tl.dot(query, tl.trans(keys)) * scale, _NOTHING_SEEN)
        new_top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.where(sees, tl.exp(scores - new_top[:, None]), 0.0)
        shrink = tl.exp(top - new_top)
        total = total * shrink + tl.sum(weights, 1)
        result = result * shrink[:, None] + tl.dot(weights.to(values.dtype), values)
        top = new_top
    # All scores of a row may be -inf in a stretch, which then weighs nothing in the combination.
    some = total > 0.0
    result = result / tl.where(some, total, 1.0)[:, None]
    if SPLIT:
        partial = (slot * heads + head) * ROWS + row
        tl.store(part_ptr + partial[:, None] * DIM + column[None, :], result)
        tl.store(log_sum_ptr + partial, tl.where(some, top + tl.log(total), _NOTHING_SEEN))
    else:
        tl.store(out_ptr + place, result.to(out_ptr.dtype.element_ty), mask=real[:, None])


def gqa_attend(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    query_lens: Sequence[int],
    kv_lens: Sequence[int],
    scale: float,
    causal: bool = True,
    on: Backend | None = None,
) -> torch.Tensor:
    """`ops/paged_gqa_attention.py`; same arguments and result, bfloat16.

    The caches may be strided views whose last axis is dense. Calls in which no request has more
    than `LONGEST_DECODE` new tokens go the decode way: the heads of a group share a tile, and long
    contexts are cut into stretches that run at the same time. All others go the prefill way.
    Raises `OperatorError` for anything outside the features of `DECODE_SPEC` or `PREFILL_SPEC`.
    """
    on = on or npu_backend(query)
    decode = max(query_lens, default=0) <= LONGEST_DECODE
    spec = DECODE_SPEC if decode else PREFILL_SPEC
    _check(spec, on, query, key_cache, value_cache, block_table, query_lens, kv_lens)
    out = torch.empty_like(query, memory_format=torch.contiguous_format)
    out[sum(query_lens) :] = 0
    tokens, heads, dim = query.shape
    group = heads // key_cache.shape[2]
    if not decode:
        plan, rows = _plan(spec, on, query, query_lens, kv_lens, 1, key_cache, causal, programs=0)
        arguments = (key_cache, value_cache, block_table, scale, plan, rows)
        _launch(spec, on, query.contiguous(), out, *arguments, heads, group, dim, heads * dim)
        return out
    # A copy of the few queries, in which the rows of a key head follow each other.
    programs = -(-CUBE_CORES[on.target] // key_cache.shape[2])
    plan, rows = _plan(spec, on, query, query_lens, kv_lens, group, key_cache, causal, programs)
    packed = query.view(tokens, heads // group, group, dim).transpose(0, 1).contiguous()
    packed_out = torch.empty_like(packed)
    arguments = (key_cache, value_cache, block_table, scale, plan, rows)
    _launch(spec, on, packed, packed_out, *arguments, heads // group, 1, tokens * group * dim, dim)
    new = sum(query_lens)
    out.view(tokens, heads // group, group, dim)[:new] = packed_out.transpose(0, 1)[:new]
    return out


def _check(spec, on, query, key_cache, value_cache, block_table, query_lens, kv_lens) -> None:
    heads, kv_heads = query.shape[1], key_cache.shape[2]
    spec.require(
        on.device,
        dtype=query.dtype,
        head_dim=query.shape[2],
        value_dim=value_cache.shape[3],
        page_size=key_cache.shape[1],
        last_stride=max(key_cache.stride(3), value_cache.stride(3)),
        queries_per_kv_head=heads // max(kv_heads, 1),
    )
    if query.shape[2] != value_cache.shape[3]:
        raise OperatorError(
            f"{spec.name}: required value_dim={value_cache.shape[3]}; supported value_dim equal to"
            f" head_dim {query.shape[2]}; missing value_dim={value_cache.shape[3]}; device"
            f" {on.device}"
        )
    REFERENCE.check_inputs(
        {
            "query": query,
            "key_cache": key_cache,
            "value_cache": value_cache,
            "block_table": block_table,
            "query_lens": query_lens,
            "kv_lens": kv_lens,
        }
    )


def _plan(spec, on, query, query_lens, kv_lens, group, key_cache, causal, programs):
    """The plan of a call and the rows of its tiles: the fewest tiles, then the smallest ones."""
    config = choose(
        spec,
        on.target,
        lambda config: config.constexprs["DIM"] == query.shape[2],
        prefer=lambda config: (
            tile_count(query_lens, group, config.constexprs["ROWS"]),
            config.constexprs["ROWS"],
        ),
    )
    rows, page = config.constexprs["ROWS"], key_cache.shape[1]
    plan = plan_attention(
        query_lens, kv_lens, group, rows, programs, page, query.device, causal=causal
    )
    return plan, rows


def _launch(
    spec: KernelSpec,
    on: Backend,
    query: torch.Tensor,
    out: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    scale: float,
    plan: AttentionPlan,
    rows: int,
    heads: int,
    heads_per_key_head: int,
    query_head: int,
    query_row: int,
) -> None:
    dim = key_cache.shape[3]
    shape = {"ROWS": rows, "DIM": dim, "SPLIT": plan.split}
    slots = plan.slots if plan.split else 0
    part = torch.empty(slots, heads, rows, dim, dtype=torch.float32, device=query.device)
    log_sum = torch.empty(slots, heads, rows, dtype=torch.float32, device=query.device)
    table = block_table.int().contiguous()
    on.launch(
        spec,
        choose(spec, on.target, lambda config: shape.items() <= config.constexprs.items()),
        (plan.slots, heads),
        query,
        key_cache,
        value_cache,
        table,
        plan.tasks,
        plan.visible,
        out,
        part,
        log_sum,
        scale,
        query_head,
        query_row,
        *key_cache.stride()[:3],
        *value_cache.stride()[:3],
        table.stride(0),
        heads,
        heads_per_key_head,
    )
    if plan.split:
        combine(on, plan, part, log_sum, out, query_head, query_row)


def _spec(name: str, tiles: tuple[int, ...], splits: tuple[bool, ...], work) -> KernelSpec:
    return KernelSpec(
        name=name,
        kernel=gqa_attention,
        signature={
            **dict.fromkeys(("query_ptr", "key_ptr", "value_ptr"), "*T"),
            **dict.fromkeys(("block_table_ptr", "tasks_ptr", "visible_ptr"), "*i32"),
            "out_ptr": "*T",
            **dict.fromkeys(("part_ptr", "log_sum_ptr"), "*fp32"),
            "scale": "fp32",
            **dict.fromkeys(("query_head", "query_row"), "i32"),
            **dict.fromkeys(("key_block", "key_token", "key_head"), "i32"),
            **dict.fromkeys(("value_block", "value_token", "value_head"), "i32"),
            **dict.fromkeys(("table_row", "heads", "heads_per_key_head"), "i32"),
        },
        configs=tuple(
            KernelConfig(
                f"rows{rows}_dim{dim}{'_split' if split else ''}",
                {"ROWS": rows, "KEYS": 128, "PAGE": 128, "DIM": dim, "SPLIT": split},
            )
            for dim in (64, 128)
            for rows in tiles
            for split in splits
        ),
        launcher=gqa_attend,
        reference="paged_gqa_attention",
        features={
            "dtype": NpuLimit(_HERE, allowed=(torch.bfloat16,)),
            "head_dim": NpuLimit(_HERE, allowed=(64, 128)),
            "value_dim": NpuLimit(_HERE, allowed=(64, 128)),
            "page_size": NpuLimit(_HERE, allowed=(128,)),
            "last_stride": NpuLimit(_HERE, allowed=(1,)),
            "queries_per_kv_head": NpuLimit(_HERE, maximum=64),
        },
        work=work,
    )


def _work(batch: int, queries: int, keys: int, heads: int, kv_heads: int, dim: int = 128) -> Work:
    seen = keys - (queries - 1) / 2
    rows = batch * queries * heads
    return Work(
        f"{batch} x {queries} queries, {heads}/{kv_heads} heads of {dim}, {keys} keys",
        cube_flops=4.0 * rows * seen * dim,
        moved_bytes=4.0 * (batch * keys * kv_heads * dim + rows * dim),
    )


# DeepSeek-V3 has no grouped queries; its expanded prefill has 128 heads with keys of their own.
DECODE_SPEC = _spec("gqa_decode", (16, 64), (False, True), (_work(32, 1, 4096, 64, 8),))
PREFILL_SPEC = _spec(
    "gqa_prefill", (128,), (False,), (_work(1, 4096, 4096, 64, 8), _work(1, 2048, 16384, 64, 8))
)
KERNELS = (DECODE_SPEC, PREFILL_SPEC)
