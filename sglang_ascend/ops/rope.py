"""Rotary position embedding of queries and keys."""

import torch

from sglang_ascend.native import rows
from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3, SMOLLM2_135M, TINY_DEEPSEEK
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

_NPU_DOC = "aclnnRotaryPositionEmbedding"

SPEC = OperatorSpec(
    name="rope",
    summary="Rotate pairs of the last axis of query and key by the angle of each token's position.",
    source="arXiv 2104.09864; torch_npu npu_rotary_mul, npu_interleave_rope",
    inputs={
        "query": TensorSpec(("tokens", "query_heads", "rotary"), FLOATS),
        "key": TensorSpec(("tokens", "key_heads", "rotary"), like="query"),
        "cos_sin": TensorSpec(("max_positions", "rotary"), FLOATS),
        "positions": TensorSpec(("tokens",), INTS),
    },
    outputs={
        "rotated_query": TensorSpec(("tokens", "query_heads", "rotary"), like="query"),
        "rotated_key": TensorSpec(("tokens", "key_heads", "rotary"), like="query"),
    },
    npu_operators=("npu::npu_rotary_mul", "npu::npu_interleave_rope"),
    npu_limits={
        "rotary_dim": NpuLimit(_NPU_DOC, maximum=894),
        "heads": NpuLimit(_NPU_DOC, maximum=999),
        "split_halves rotary_dim": NpuLimit("aclnnInterleaveRope", allowed=(64,)),
    },
    tolerance=Tolerance(
        "float32 products; a 16-bit NPU call has 16-bit tables and rounds the result once",
        float32=1e-6,
        bfloat16=2**-6,
        float16=2**-9,
    ),
)


def rotate(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool, split_halves: bool
) -> torch.Tensor:
    """x [tokens, heads, rotary], cos and sin [tokens, 1, rotary/2] float32 -> like x."""
    if interleaved:
        first, second = x[..., 0::2], x[..., 1::2]
    else:
        first, second = x.chunk(2, dim=-1)
    rotated = (first * cos - second * sin, second * cos + first * sin)
    if interleaved and not split_halves:
        return torch.stack(rotated, dim=-1).flatten(-2).to(x.dtype)
    return torch.cat(rotated, dim=-1).to(x.dtype)


def gather_cos_sin(
    cos_sin: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of the tables as float32 cos and sin, each [tokens, 1, rotary/2]."""
    return cos_sin.index_select(0, positions).float().unsqueeze(1).chunk(2, dim=-1)


def reference(
    query: torch.Tensor,
    key: torch.Tensor,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    interleaved: bool,
    split_halves: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate query [tokens, query_heads, rotary] and key [tokens, key_heads, rotary].

    cos_sin [max_positions, rotary]: cosines in the first half, sines in the second; positions
    [tokens]. interleaved: pairs are neighbours (0, 1), (2, 3) rather than (i, i + rotary/2).
    split_halves: with `interleaved`, return the pairs in the layout (i, i + rotary/2), which is
    what the fused MLA operators write to the cache. One cache needs one layout.
    """
    cos, sin = gather_cos_sin(cos_sin, positions)
    return (
        rotate(query, cos, sin, interleaved, split_halves),
        rotate(key, cos, sin, interleaved, split_halves),
    )


def host(query, key, cos_sin, positions, interleaved, split_halves=False):
    return rows.rope(query, key, cos_sin, positions, interleaved, split_halves)


def check_npu_limits(query_heads: int, key_heads: int, rotary: int, split_halves: bool) -> None:
    SPEC.require_npu("heads", max(query_heads, key_heads))
    SPEC.require_npu("rotary_dim", rotary)
    if split_halves:
        SPEC.require_npu("split_halves rotary_dim", rotary)


def npu(query, key, cos_sin, positions, interleaved, split_halves=False):
    split_halves = interleaved and split_halves
    check_npu_limits(query.shape[1], key.shape[1], query.shape[2], split_halves)
    cos, sin = cos_sin.index_select(0, positions).to(query.dtype).chunk(2, dim=-1)
    if split_halves:
        cos, sin = (torch.cat((table, table), dim=-1)[:, None, None] for table in (cos, sin))
        return tuple(
            torch.ops.npu.npu_interleave_rope(x.unsqueeze(2).contiguous(), cos, sin).squeeze(2)
            for x in (query, key)
        )
    if interleaved:
        # The interleave mode wants [sequence, batch, heads, dim] with tables that vary by sequence.
        cos, sin = (table.repeat_interleave(2, dim=-1)[:, None, None] for table in (cos, sin))
        batch_axis, mode = 1, "interleave"
    else:
        cos, sin = (torch.cat((table, table), dim=-1)[None, :, None] for table in (cos, sin))
        batch_axis, mode = 0, "half"
    return tuple(
        torch.ops.npu.npu_rotary_mul(x.unsqueeze(batch_axis), cos, sin, rotary_mode=mode).squeeze(
            batch_axis
        )
        for x in (query, key)
    )


def _case(
    label: str, tokens: int, query_heads: int, key_heads: int, rotary: int, **flags
) -> ContractCase:
    def build(device, dtype):
        return {
            "query": torch.empty(tokens, query_heads, rotary, dtype=dtype, device=device),
            "key": torch.empty(tokens, key_heads, rotary, dtype=dtype, device=device),
            "cos_sin": torch.empty(4096, rotary, dtype=dtype, device=device),
            "positions": torch.zeros(tokens, dtype=torch.int64, device=device),
            **flags,
        }

    return ContractCase(label, build)


CONTRACT = (
    _case(
        "SmolLM2-135M decode", 8, SMOLLM2_135M.heads, SMOLLM2_135M.kv_heads, 64, interleaved=False
    ),
    _case("tiny-deepseek-v3 prefill", 256, TINY_DEEPSEEK.heads, 1, 64, interleaved=True),
    _case("DeepSeek-V3 decode", 64, DEEPSEEK_V3.heads, 1, 64, interleaved=True, split_halves=True),
)

rope = Operator(SPEC, reference, npu, CONTRACT, host)
