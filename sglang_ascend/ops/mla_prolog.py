"""Everything before absorbed MLA attention: projections, norms, rotation, W_UK, cache write."""

import torch

from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3
from sglang_ascend.ops.kv_rmsnorm_rope_write import reference as write_kv
from sglang_ascend.ops.paged import check_slots
from sglang_ascend.ops.rms_norm import normalise
from sglang_ascend.ops.rope import gather_cos_sin, rotate
from sglang_ascend.ops.spec import (
    FLOATS,
    INTS,
    ContractCase,
    NpuLimit,
    Operator,
    OperatorError,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)

_DOC = "aclnnMlaPrologV3WeightNz"


def _check_slots(arguments) -> None:
    slots = arguments["slots"]
    check_slots("mla_prolog", slots, arguments["latent_cache"])
    if slots.numel() and int(slots.min()) < 0:
        raise OperatorError(
            "mla_prolog: slots must not be negative; give padding tokens a slot of a block that"
            f" nobody reads, got {int(slots.min())}"
        )


SPEC = OperatorSpec(
    name="mla_prolog",
    summary=(
        "x -> absorbed queries in the latent space and rotated queries; latents and keys cached."
    ),
    source="arXiv 2405.04434 section 2.1; torch_npu npu_mla_prolog_v3",
    inputs={
        "x": TensorSpec(("tokens", "hidden"), FLOATS),
        "w_dq": TensorSpec(("hidden", "q_lora"), like="x"),
        "w_uq_qr": TensorSpec(("q_lora", "heads*nope+heads*rotary"), like="x"),
        "w_uk": TensorSpec(("heads", "nope", "kv_lora"), like="x"),
        "w_dkv_kr": TensorSpec(("hidden", "kv_lora+rotary"), like="x"),
        "q_norm": TensorSpec(("q_lora",), like="x"),
        "kv_norm": TensorSpec(("kv_lora",), like="x"),
        "cos_sin": TensorSpec(("max_positions", "rotary"), FLOATS),
        "positions": TensorSpec(("tokens",), INTS),
        "latent_cache": TensorSpec(("blocks", "page", 1, "kv_lora"), like="x"),
        "rope_cache": TensorSpec(("blocks", "page", 1, "rotary"), like="x"),
        "slots": TensorSpec(("tokens",), INTS),
    },
    outputs={
        "query_latent": TensorSpec(("tokens", "heads", "kv_lora"), like="x"),
        "query_rope": TensorSpec(("tokens", "heads", "rotary"), like="x"),
    },
    mutates=("latent_cache", "rope_cache"),
    npu_operators=("npu::npu_mla_prolog_v3",),
    npu_limits={
        "dtype": NpuLimit(_DOC, allowed=(torch.bfloat16,)),
        "hidden": NpuLimit(_DOC, allowed=(6144, 7168, 7680)),
        "q_lora": NpuLimit(_DOC, allowed=(1536,)),
        "heads": NpuLimit(_DOC, allowed=(1, 2, 4, 8, 16, 32, 64, 128)),
        "kv_lora": NpuLimit(_DOC, allowed=(512,)),
        "nope_dim": NpuLimit(_DOC, allowed=(128,)),
        "rotary_dim": NpuLimit(_DOC, allowed=(64,)),
        "page_size": NpuLimit(_DOC, allowed=(16, 128)),
    },
    tolerance=Tolerance(
        "four matrix products in a row, each rounded to 16 bits by the NPU and by the reference at"
        " other places of the sum",
        float32=1e-4,
        bfloat16=2**-5,
        float16=2**-8,
    ),
    values=_check_slots,
)


def reference(
    x: torch.Tensor,
    w_dq: torch.Tensor,
    w_uq_qr: torch.Tensor,
    w_uk: torch.Tensor,
    w_dkv_kr: torch.Tensor,
    q_norm: torch.Tensor,
    kv_norm: torch.Tensor,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    latent_cache: torch.Tensor,
    rope_cache: torch.Tensor,
    slots: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """x [tokens, hidden] -> query_latent and query_rope, [tokens, heads, kv_lora or rotary].

    Weights are [in, out]: w_dq [hidden, q_lora]; w_uq_qr [q_lora, heads * (nope + rotary)], each
    head's non-rotary part before its rotary part; w_dkv_kr [hidden, kv_lora + rotary]; w_uk [heads,
    nope, kv_lora]. q_norm [q_lora] and kv_norm [kv_lora]: RMSNorm weights. cos_sin [max_positions,
    rotary], positions [tokens]; the caches and slots of `kv_rmsnorm_rope_write`, except that no
    slot is negative. Rotary parts come in interleaved pairs and are returned and written in halves.
    """
    heads, nope, _ = w_uk.shape
    rotary = cos_sin.shape[1]
    query = normalise(x @ w_dq, q_norm, eps, x.dtype) @ w_uq_qr
    query = query.view(-1, heads, nope + rotary)
    query_nope, query_rope = query.split((nope, rotary), dim=-1)
    query_latent = torch.bmm(query_nope.transpose(0, 1), w_uk).transpose(0, 1).contiguous()
    cos, sin = gather_cos_sin(cos_sin, positions)
    query_rope = rotate(query_rope, cos, sin, interleaved=True, split_halves=True)
    write_kv(x @ w_dkv_kr, kv_norm, cos_sin, positions, latent_cache, rope_cache, slots, eps)
    return query_latent, query_rope


def check_npu_limits(
    dtype: torch.dtype,
    hidden: int,
    q_lora: int,
    heads: int,
    kv_lora: int,
    nope: int,
    rotary: int,
    page: int,
) -> None:
    SPEC.require_npu("dtype", dtype)
    SPEC.require_npu("hidden", hidden)
    SPEC.require_npu("q_lora", q_lora)
    SPEC.require_npu("heads", heads)
    SPEC.require_npu("kv_lora", kv_lora)
    SPEC.require_npu("nope_dim", nope)
    SPEC.require_npu("rotary_dim", rotary)
    SPEC.require_npu("page_size", page)


def npu(
    x,
    w_dq,
    w_uq_qr,
    w_uk,
    w_dkv_kr,
    q_norm,
    kv_norm,
    cos_sin,
    positions,
    latent_cache,
    rope_cache,
    slots,
    eps,
):
    """The two-dimensional weights are expected in FRACTAL_NZ (`npu_format.to_fractal_nz`)."""
    heads, nope, kv_lora = w_uk.shape
    check_npu_limits(
        x.dtype,
        x.shape[1],
        w_dq.shape[1],
        heads,
        kv_lora,
        nope,
        cos_sin.shape[1],
        latent_cache.shape[1],
    )
    SPEC.require_contiguous(latent_cache=latent_cache, rope_cache=rope_cache)
    tables = cos_sin.index_select(0, positions).to(x.dtype).chunk(2, dim=-1)
    cos, sin = (torch.cat((table, table), dim=-1) for table in tables)
    query_latent, query_rope, *_ = torch.ops.npu.npu_mla_prolog_v3(
        x,
        w_dq,
        w_uq_qr,
        w_uk,
        w_dkv_kr,
        q_norm,
        kv_norm,
        sin,
        cos,
        latent_cache,
        rope_cache,
        cache_index=slots.long(),
        rmsnorm_epsilon_cq=eps,
        rmsnorm_epsilon_ckv=eps,
        cache_mode="PA_BSND",
    )
    return query_latent, query_rope


def _case(label: str, tokens: int, heads: int) -> ContractCase:
    model = DEEPSEEK_V3

    def build(device, dtype):
        def tensor(*shape, dtype=dtype):
            return torch.zeros(*shape, dtype=dtype, device=device)

        return {
            "x": tensor(tokens, model.hidden),
            "w_dq": tensor(model.hidden, model.q_lora),
            "w_uq_qr": tensor(model.q_lora, heads * (model.nope + model.rope)),
            "w_uk": tensor(heads, model.nope, model.kv_lora),
            "w_dkv_kr": tensor(model.hidden, model.kv_lora + model.rope),
            "q_norm": tensor(model.q_lora),
            "kv_norm": tensor(model.kv_lora),
            "cos_sin": tensor(4096, model.rope),
            "positions": tensor(tokens, dtype=torch.int64),
            "latent_cache": tensor(64, 128, 1, model.kv_lora),
            "rope_cache": tensor(64, 128, 1, model.rope),
            "slots": tensor(tokens, dtype=torch.int64),
            "eps": 1e-6,
        }

    return ContractCase(label, build)


CONTRACT = (
    _case("DeepSeek-V3 decode", 8, 128),
    _case("DeepSeek-V3 decode, TP 8", 64, 16),
)

mla_prolog = Operator(SPEC, reference, npu, CONTRACT)
