"""Absorbed MLA over a paged latent cache, for decode and verification: AMLA and online softmax.

One program has a tile of up to ROWS rows, (query, head) pairs of one request, and walks over the
pages of one stretch of its keys. Both halves of the latent are separate tiles, so that the
accumulator of 64 rows fits the unified buffers of the two vector cores.

In AMLA's paper the addition to the accumulator's bits is an atomic one on global memory, which
frees the accumulator from passing through the unified buffer. That form cannot be written in Triton
today (`kernel_proof/lint.py` says why). Here it is made on the carried tile: the arithmetic of
AMLA, without its saving.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton.language as tl

from sglang_ascend.kernels.amla import add_bits, bits_to_add, power_of_two
from sglang_ascend.kernels.attention_plan import plan_attention, tile_count
from sglang_ascend.kernels.cores import CUBE_CORES
from sglang_ascend.kernels.launching import Backend, choose, npu_backend
from sglang_ascend.kernels.spec import KernelConfig, KernelSpec, Work, ascend_kernel
from sglang_ascend.kernels.split_combine import combine
from sglang_ascend.ops.paged_mla_attention import SPEC as REFERENCE
from sglang_ascend.ops.spec import NpuLimit, OperatorError

_HERE = "kernels/mla_decode.py"

# Stands for the maximum of no scores; scores are far above it.
NOTHING_SEEN = tl.constexpr(-1.0e30)


@ascend_kernel
def mla_decode(
    query_latent_ptr,  # [rows, LATENT] bf16
    query_rope_ptr,  # [rows, ROTARY] bf16
    latent_ptr,  # [blocks, PAGE, LATENT] bf16, last axis dense
    rope_ptr,  # [blocks, PAGE, ROTARY] bf16, last axis dense
    block_table_ptr,  # [requests, table_row] int32
    tasks_ptr,  # [tasks, 8] int32, see attention_plan.py
    visible_ptr,  # [rows] int32: how many of its request's first keys a row sees
    out_ptr,  # [rows, LATENT] bf16, output unless SPLIT
    part_ptr,  # [slots, ROWS, LATENT] fp32, output if SPLIT
    log_sum_ptr,  # [slots, ROWS] fp32, output if SPLIT
    scale,
    latent_block,
    latent_token,
    rope_block,
    rope_token,
    table_row,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    PAGE: tl.constexpr,
    LATENT: tl.constexpr,
    ROTARY: tl.constexpr,
    AMLA: tl.constexpr,
    SPLIT: tl.constexpr,
):
    HALF: tl.constexpr = LATENT // 2
    task = tasks_ptr + tl.program_id(0) * 8
    request = tl.load(task)
    first = tl.load(task + 1)
    count = tl.load(task + 2)
    begin = tl.load(task + 3)
    end = tl.load(task + 4)
    slot = tl.load(task + 5)
    row = tl.arange(0, ROWS)
    column = tl.arange(0, HALF)
    rotary = tl.arange(0, ROTARY)
    key = tl.arange(0, KEYS)
    real = row < count
    at = first + row
    query = query_latent_ptr + at[:, None] * LATENT + column[None, :]
    query_left = tl.load(query, mask=real[:, None], other=0.0)
    query_right = tl.load(query + HALF, mask=real[:, None], other=0.0)
    query_rope = tl.load(
        query_rope_ptr + at[:, None] * ROTARY + rotary[None, :], mask=real[:, None], other=0.0
    )
    visible = tl.load(visible_ptr + at, mask=real, other=0)
    top = tl.full((ROWS,), NOTHING_SEEN, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    left = tl.zeros((ROWS, HALF), tl.float32)
    right = tl.zeros((ROWS, HALF), tl.float32)
    exponent = tl.zeros((ROWS,), tl.float32)
    factor16 = tl.full((ROWS,), 1.0, tl.float32)
    excess = tl.full((ROWS,), 1.0, tl.float32)
    for start in range(begin, end, KEYS):
        # A cache may have more than 2^31 elements.
        block = tl.load(block_table_ptr + request * table_row + start // PAGE).to(tl.int64)
        token = start % PAGE + key
        inside = (start + key < end)[:, None]
        latent = latent_ptr + block * latent_block + token[:, None] * latent_token + column[None, :]
        keys_left = tl.load(latent, mask=inside, other=0.0)
        keys_right = tl.load(latent + HALF, mask=inside, other=0.0)
        keys_rope = tl.load(
            rope_ptr + block * rope_block + token[:, None] * rope_token + rotary[None, :],
            mask=inside,
            other=0.0,
        )
        scores = tl.dot(query_left, tl.trans(keys_left))
        scores = tl.dot(query_right, tl.trans(keys_right), scores)
        scores = tl.dot(query_rope, tl.trans(keys_rope), scores)
        sees = (start + key)[None, :] < visible[:, None]
        scores = tl.where(sees, scores * scale, NOTHING_SEEN)
        new_top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.where(sees, tl.exp(scores - new_top[:, None]), 0.0)
        shrink = tl.exp(top - new_top)
        total = total * shrink + tl.sum(weights, 1)
        if AMLA:
            new_exponent, factor16, new_excess = power_of_two(
                new_top, new_top > NOTHING_SEEN, excess
            )
            addend = bits_to_add(exponent, new_exponent, excess, new_excess)
            left = add_bits(left, addend)
            right = add_bits(right, addend)
            weights = weights * factor16[:, None]
            exponent = new_exponent
            excess = new_excess
        else:
            left = left * shrink[:, None]
            right = right * shrink[:, None]
        weights16 = weights.to(keys_left.dtype)
        left = left + tl.dot(weights16, keys_left)
        right = right + tl.dot(weights16, keys_right)
        top = new_top
    # All scores of a row may be -inf in a stretch, which then weighs nothing in the combination.
    some = total > 0.0
    divisor = tl.where(some, total * factor16, 1.0)
    left = left / divisor[:, None]
    right = right / divisor[:, None]
    if SPLIT:
        part = part_ptr + (slot * ROWS + row)[:, None] * LATENT + column[None, :]
        tl.store(part, left)
        tl.store(part + HALF, right)
        log_sum = tl.where(some, top + tl.log(total), NOTHING_SEEN)
        tl.store(log_sum_ptr + slot * ROWS + row, log_sum)
    else:
        out = out_ptr + at[:, None] * LATENT + column[None, :]
        tl.store(out, left.to(out_ptr.dtype.element_ty), mask=real[:, None])
        tl.store(out + HALF, right.to(out_ptr.dtype.element_ty), mask=real[:, None])


def mla_attend(
    query_latent: torch.Tensor,
    query_rope: torch.Tensor,
    latent_cache: torch.Tensor,
    rope_cache: torch.Tensor,
    block_table: torch.Tensor,
    query_lens: Sequence[int],
    kv_lens: Sequence[int],
    scale: float,
    method: str = "online",
    on: Backend | None = None,
) -> torch.Tensor:
    """`ops/paged_mla_attention.py`; same arguments and result, bfloat16.

    method: "online" or "amla". The caches may be strided views whose last axis is dense. Long
    contexts are cut into stretches that run at the same time.
    Raises `OperatorError` for anything outside the features of `ONLINE_SPEC` or `AMLA_SPEC`.
    """
    on = on or npu_backend(query_latent)
    if method not in METHODS:
        raise OperatorError(
            f"mla_attend: method must be one of {', '.join(METHODS)}, got {method!r}"
        )
    spec = METHODS[method]
    tokens, heads, latent = query_latent.shape
    page, rotary = rope_cache.shape[1], rope_cache.shape[3]
    spec.require(
        on.device,
        dtype=query_latent.dtype,
        cache_dtype=latent_cache.dtype,
        heads=heads,
        kv_lora=latent,
        rotary_dim=rotary,
        page_size=page,
        query_len=max(query_lens, default=0),
        last_stride=max(latent_cache.stride(3), rope_cache.stride(3)),
    )
    REFERENCE.check_inputs(
        {
            "query_latent": query_latent,
            "query_rope": query_rope,
            "latent_cache": latent_cache,
            "rope_cache": rope_cache,
            "block_table": block_table,
            "query_lens": query_lens,
            "kv_lens": kv_lens,
        }
    )
    config = choose(
        spec,
        on.target,
        lambda config: not config.constexprs["SPLIT"],
        prefer=lambda config: (
            tile_count(query_lens, heads, config.constexprs["ROWS"]),
            config.constexprs["ROWS"],
        ),
    )
    rows = config.constexprs["ROWS"]
    programs = CUBE_CORES[on.target]
    plan = plan_attention(query_lens, kv_lens, heads, rows, programs, page, query_latent.device)
    out = torch.empty(tokens, heads, latent, dtype=query_latent.dtype, device=query_latent.device)
    out[sum(query_lens) :] = 0
    part_shape = (plan.slots, 1, rows, latent) if plan.split else (0, 1, rows, latent)
    part = torch.empty(part_shape, dtype=torch.float32, device=out.device)
    log_sum = torch.empty(part_shape[:-1], dtype=torch.float32, device=out.device)
    table = block_table.int().contiguous()
    shape = {"ROWS": rows, "SPLIT": plan.split}
    on.launch(
        spec,
        choose(spec, on.target, lambda config: shape.items() <= config.constexprs.items()),
        (plan.slots,),
        query_latent.contiguous(),
        query_rope.contiguous(),
        latent_cache,
        rope_cache,
        table,
        plan.tasks,
        plan.visible,
        out,
        part,
        log_sum,
        scale,
        latent_cache.stride(0),
        latent_cache.stride(1),
        rope_cache.stride(0),
        rope_cache.stride(1),
        table.stride(0),
    )
    if plan.split:
        combine(on, plan, part, log_sum, out, 0, latent)
    return out


def _name(rows: int, split: bool) -> str:
    return f"rows{rows}{'_split' if split else ''}"


def _spec(name: str, amla: bool, tiles: tuple[int, ...]) -> KernelSpec:
    return KernelSpec(
        name=name,
        kernel=mla_decode,
        signature={
            **dict.fromkeys(("query_latent_ptr", "query_rope_ptr", "latent_ptr", "rope_ptr"), "*T"),
            **dict.fromkeys(("block_table_ptr", "tasks_ptr", "visible_ptr"), "*i32"),
            "out_ptr": "*T",
            "part_ptr": "*fp32",
            "log_sum_ptr": "*fp32",
            "scale": "fp32",
            **dict.fromkeys(
                ("latent_block", "latent_token", "rope_block", "rope_token", "table_row"), "i32"
            ),
        },
        configs=tuple(
            KernelConfig(
                _name(rows, split),
                {
                    "ROWS": rows,
                    "KEYS": 128,
                    "PAGE": 128,
                    "LATENT": 512,
                    "ROTARY": 64,
                    "AMLA": amla,
                    "SPLIT": split,
                },
            )
            for rows in tiles
            for split in (False, True)
        ),
        launcher=mla_attend,
        reference="paged_mla_attention",
        features={
            "dtype": NpuLimit(_HERE, allowed=(torch.bfloat16,)),
            "cache_dtype": NpuLimit(_HERE, allowed=(torch.bfloat16,)),
            "heads": NpuLimit(_HERE, allowed=(16, 32, 64, 128)),
            "kv_lora": NpuLimit(_HERE, allowed=(512,)),
            "rotary_dim": NpuLimit(_HERE, allowed=(64,)),
            "page_size": NpuLimit(_HERE, allowed=(128,)),
            "query_len": NpuLimit(_HERE, maximum=4),
            "last_stride": NpuLimit(_HERE, allowed=(1,)),
        },
        work=tuple(
            _work(batch, queries, keys)
            for batch, queries, keys in ((32, 1, 4096), (32, 2, 4096), (1, 1, 65536))
        ),
    )


def _work(batch: int, queries: int, keys: int, heads: int = 128) -> Work:
    rows = batch * queries * heads
    return Work(
        f"{batch} requests x {queries} queries, {heads} heads, {keys} keys",
        cube_flops=2.0 * rows * keys * (512 + 64 + 512),
        moved_bytes=2.0 * (batch * keys * (512 + 64) + rows * (512 + 64 + 512)),
    )


AMLA_SPEC = _spec("amla_decode", True, (16, 32))
# Without the integer view of the accumulator, 64 rows fit.
ONLINE_SPEC = _spec("mla_decode", False, (16, 32, 64))
METHODS = {"online": ONLINE_SPEC, "amla": AMLA_SPEC}
KERNELS = (AMLA_SPEC, ONLINE_SPEC)
