"""What DeepSeek-V3 calls in each step of `deployment_steps.py`, computed.

Strides are those that the recorded runs of tiny-deepseek-v3 show: latents and rotary parts are
slices of one projection, expert weights are stored as [experts, out, in].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from sglang_ascend.contract.deployment_steps import STEPS, Step
from sglang_ascend.ops import moe_distribute_dispatch as dispatch
from sglang_ascend.ops.call_shapes import build
from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3 as MODEL

_PAGE = 128
_VOCABULARY = 129_280
_DENSE_INTER = 18_432
_POSITIONS = 163_840
_EPS = 1e-6
_SCALE = (MODEL.nope + MODEL.rope) ** -0.5
# One projection gives query latent, key/value latent and rotary key of a token.
_DOWN_WIDTH = MODEL.q_lora + MODEL.kv_lora + MODEL.rope

Build = Callable[[torch.device], dict[str, Any]]


def cases() -> Iterator[tuple[str, str, Build]]:
    """Operator, label and arguments of every call that the steps make."""
    for step in STEPS:
        for part in (_rows, _attention, _experts, _int8, _sampling):
            for operator, what, arguments in part(step):
                label = f"{step.label}: {what}" if what else step.label
                yield operator, label, partial(_build, arguments)
        if step.ep is not None:
            yield "moe_distribute_dispatch", step.label, partial(_dispatch, step)
            yield "moe_distribute_combine", step.label, partial(_combine, step)


def _build(arguments: dict[str, Any], device: torch.device) -> dict[str, Any]:
    return {name: build(value, device) for name, value in arguments.items()}


def _t(*shape: int, dtype: str = "bfloat16", stride: tuple[int, ...] = (), fill: float = 0):
    described = {"tensor": list(shape), "dtype": dtype, "fill": fill}
    return {**described, "stride": list(stride)} if stride else described


def _rows(step: Step):
    hidden, tokens = MODEL.hidden, step.tokens
    norm = {"x": _t(step.rows, hidden), "weight": _t(hidden), "eps": _EPS}
    yield "rms_norm", "hidden", norm
    yield "add_rms_norm", "", {**norm, "residual": _t(step.rows, hidden)}
    for what, width in (("query latent", MODEL.q_lora), ("latent", MODEL.kv_lora)):
        sliced = _t(tokens, width, stride=(_DOWN_WIDTH, 1))
        yield "rms_norm", what, {"x": sliced, "weight": _t(width), "eps": _EPS}
    yield "swiglu", "shared expert", {"x": _t(step.rows, 2 * MODEL.inter)}
    yield "swiglu", "dense layer", {"x": _t(step.rows, 2 * _DENSE_INTER)}
    yield "dynamic_quant", "", {"x": _t(step.rows, hidden)}


def _attention(step: Step):
    tokens, heads, head = step.tokens, step.heads, MODEL.nope + MODEL.rope
    by_head = (heads * head, head, 1)
    blocks = sum(-(-length // _PAGE) for length in step.kv_lens) + 1
    caches = {
        "latent_cache": _t(blocks, _PAGE, 1, MODEL.kv_lora),
        "rope_cache": _t(blocks, _PAGE, 1, MODEL.rope),
    }
    slots = {"slots": _t(tokens, dtype="int64")}
    places = {
        "cos_sin": _t(_POSITIONS, MODEL.rope),
        "positions": _t(tokens, dtype="int64"),
    }
    yield (
        "rope",
        "",
        {
            "query": _t(tokens, heads, MODEL.rope, stride=by_head),
            "key": _t(tokens, 1, MODEL.rope, stride=(_DOWN_WIDTH, MODEL.rope, 1)),
            **places,
            "interleaved": True,
        },
    )
    written = {"latent": _t(tokens, MODEL.kv_lora), "rope": _t(tokens, MODEL.rope)}
    yield "mla_kv_write", "", {**written, **caches, **slots}
    norm = {"weight": _t(MODEL.kv_lora), "eps": _EPS}
    sliced = _t(tokens, MODEL.kv_lora + MODEL.rope, stride=(_DOWN_WIDTH, 1))
    yield "kv_rmsnorm_rope_write", "", {"kv": sliced, **norm, **places, **caches, **slots}
    requests = {
        "block_table": _t(len(step.kv_lens), max(step.kv_lens) // _PAGE, dtype="int32"),
        "query_lens": list(step.query_lens),
        "kv_lens": list(step.kv_lens),
        "scale": _SCALE,
    }
    w_uk = _t(heads, MODEL.nope, MODEL.kv_lora, stride=(MODEL.nope * MODEL.kv_lora, 1, MODEL.nope))
    if step.is_prefill:
        yield (
            "mla_prefill_expanded",
            "",
            {
                "query_nope": _t(tokens, heads, MODEL.nope, stride=by_head),
                "query_rope": _t(tokens, heads, MODEL.rope, stride=by_head),
                **caches,
                **requests,
                "w_uk": w_uk,
                "w_uv": _t(heads, MODEL.kv_lora, MODEL.value),
            },
        )
        return
    yield (
        "paged_mla_attention",
        "",
        {
            "query_latent": _t(tokens, heads, MODEL.kv_lora, stride=(512, 512 * tokens, 1)),
            "query_rope": _t(tokens, heads, MODEL.rope),
            **caches,
            **requests,
        },
    )
    yield (
        "mla_prolog",
        "",
        {
            "x": _t(tokens, MODEL.hidden),
            "w_dq": _t(MODEL.hidden, MODEL.q_lora),
            "w_uq_qr": _t(MODEL.q_lora, heads * head),
            "w_uk": _t(heads, MODEL.nope, MODEL.kv_lora),
            "w_dkv_kr": _t(MODEL.hidden, MODEL.kv_lora + MODEL.rope),
            "q_norm": _t(MODEL.q_lora),
            "kv_norm": _t(MODEL.kv_lora),
            **places,
            **caches,
            **slots,
            "eps": _EPS,
        },
    )


def _experts(step: Step):
    hidden, inter, experts = MODEL.hidden, MODEL.inter, step.experts
    yield (
        "gate_topk_grouped_sigmoid",
        "",
        {
            "logits": _t(step.rows, MODEL.experts, dtype="float32"),
            "bias": _t(MODEL.experts, dtype="float32"),
            "top_k": MODEL.top_k,
            "n_group": MODEL.groups,
            "topk_group": MODEL.top_groups,
            "renormalize": True,
            "routed_scaling_factor": 2.5,
        },
    )
    pairs = step.gathered * MODEL.top_k
    yield (
        "moe_permute",
        "",
        {
            "x": _t(step.gathered, hidden),
            "ids": _t(step.gathered, MODEL.top_k, dtype="int32"),
            "expert_start": MODEL.experts - experts,
            "expert_end": MODEL.experts,
        },
    )
    yield (
        "moe_unpermute",
        "",
        {
            "expert_out": _t(pairs, hidden),
            "row_index": _t(pairs, dtype="int32"),
            "weights": _t(step.gathered, MODEL.top_k, dtype="float32"),
        },
    )
    counts = {"tokens_per_expert": _t(experts, dtype="int64")}
    for transport, number in step.expert_rows.items():
        up = _t(experts, hidden, 2 * inter, stride=(2 * inter * hidden, 1, hidden))
        down = _t(experts, inter, hidden, stride=(inter * hidden, 1, inter))
        gate_up = {"x": _t(number, hidden), "weights": up, **counts}
        yield "grouped_matmul", f"gate and up, {transport}", gate_up
        yield (
            "grouped_matmul",
            f"down, {transport}",
            {
                "x": _t(number, inter),
                "weights": down,
                **counts,
            },
        )
        yield "swiglu", f"experts, {transport}", {"x": _t(number, 2 * inter)}


def _int8(step: Step):
    """The operators of INT8 weights and activations, where the rest of the step is as above."""
    hidden, inter, tokens = MODEL.hidden, MODEL.inter, step.tokens
    norm = {"x": _t(step.rows, hidden), "weight": _t(hidden), "eps": _EPS}
    yield "add_rms_norm_quant", "", {**norm, "residual": _t(step.rows, hidden)}
    latent = _t(tokens, MODEL.q_lora, stride=(_DOWN_WIDTH, 1))
    query = {"x": latent, "weight": _t(MODEL.q_lora), "eps": _EPS}
    yield "rms_norm_quant", "query latent", query
    width = step.heads * (MODEL.nope + MODEL.rope)
    yield "quant_matmul", "query up", _product((tokens,), (), MODEL.q_lora, width)
    yield "quant_matmul", "shared expert", _product((step.rows,), (), hidden, 2 * inter)
    counts = {"tokens_per_expert": _t(step.experts, dtype="int64")}
    for transport, rows in step.expert_rows.items():
        up = _product((rows,), (step.experts,), hidden, 2 * inter)
        yield "quant_grouped_matmul", f"gate and up, {transport}", {**up, **counts}
        down = _product((rows,), (step.experts,), inter, hidden)
        yield "quant_grouped_matmul", f"down, {transport}", {**down, **counts}
        yield "swiglu_quant", transport, {"x": _t(rows, 2 * inter), **counts}


def _product(rows: tuple[int], experts: tuple[int, ...], columns: int, out: int):
    return {
        "x": _t(*rows, columns, dtype="int8"),
        "x_scale": _t(*rows, dtype="float32"),
        "weights" if experts else "weight": _t(*experts, columns, out, dtype="int8"),
        "weight_scale": _t(*experts, out, dtype="float32"),
        "dtype": {"torch_dtype": "bfloat16"},
    }


def _sampling(step: Step):
    if not step.samples:
        return
    requests = len(step.query_lens)
    numbers = _t(requests, dtype="int64")
    weights = _t(requests, _VOCABULARY, dtype="float32", fill=1)
    yield (
        "sampling_filter",
        "",
        {
            "logits": _t(requests, _VOCABULARY, dtype="float32"),
            "temperature": _t(requests, dtype="float32", fill=1),
            "top_k": _t(requests, dtype="int32", fill=20),
            "top_p": _t(requests, dtype="float32", fill=0.9),
            "min_p": None,
            "max_top_k": 20,
        },
    )
    yield "sample", "", {"weights": weights, "seeds": None, "positions": None}
    yield "sample", "seeded", {"weights": weights, "seeds": numbers, "positions": numbers}


def _dispatch(step: Step, device: torch.device) -> dict[str, Any]:
    tokens, top_k = step.tokens, MODEL.top_k
    return {
        "x": torch.zeros(tokens, MODEL.hidden, dtype=torch.bfloat16, device=device),
        "ids": torch.arange(top_k, dtype=torch.int32, device=device).repeat(tokens, 1),
        "weights": torch.zeros(tokens, top_k, dtype=torch.float32, device=device),
        "ep": step.ep,
        "token_counts": (tokens,) * step.ep.group.size,
        "quantized": step.ep.product == "A3",
    }


def _combine(step: Step, device: torch.device) -> dict[str, Any]:
    """`state` is what the dispatch of the same device returns."""
    given = _dispatch(step, device)
    run = dispatch.npu if device.type == "npu" else dispatch.reference
    rows, *_, state = run(**given)
    return {
        "expert_out": torch.zeros(len(rows), MODEL.hidden, dtype=torch.bfloat16, device=device),
        **{name: given[name] for name in ("ids", "weights", "ep", "token_counts")},
        "state": state,
    }
