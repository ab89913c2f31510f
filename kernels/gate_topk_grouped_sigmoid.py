"""Experts of each token: sigmoid scores, correction bias, best groups, best experts of those.

Reference: `ops/gate_topk_grouped_sigmoid.py`. The best of a row is found by a maximum and then the
least index that has it, again and again with that place removed: the lowering for the host has no
sort, and eight rounds over 256 scores need none. Of equal scores the lower index comes first.
"""

from __future__ import annotations

import torch
import triton.language as tl

from sglang_ascend.kernels.cores import vector_programs
from sglang_ascend.kernels.launching import Backend, choose, npu_backend
from sglang_ascend.kernels.rows import DENSE, HERE
from sglang_ascend.kernels.spec import KernelConfig, KernelSpec, Work, ascend_kernel
from sglang_ascend.ops import gate_topk_grouped_sigmoid as operator
from sglang_ascend.ops.spec import NpuLimit

_DROPPED = tl.constexpr(float("-inf"))
# Keeps the denominator of the renormalisation from being zero, as in the operator.
_EPSILON = tl.constexpr(1e-20)


@ascend_kernel
def gate_topk_grouped_sigmoid(
    logits_ptr,  # [tokens, GROUPS * GROUP] T, rows logits_stride elements apart
    bias_ptr,  # [GROUPS * GROUP] float32
    weights_ptr,  # [tokens, top_k] float32, output
    ids_ptr,  # [tokens, top_k] int32, output
    tokens,
    logits_stride,
    top_k,
    top_groups,
    renormalize,  # 1 or 0
    scaling,
    TOKENS: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    CHOICES: tl.constexpr,
):
    EXPERTS: tl.constexpr = GROUPS * GROUP
    token = tl.arange(0, TOKENS)
    group = tl.arange(0, GROUPS)[None, :]
    place = tl.arange(0, GROUP)[None, :]
    expert = tl.arange(0, EXPERTS)[None, :]
    rank = tl.arange(0, CHOICES)[None, :]
    bias = tl.load(bias_ptr + expert)
    for first in range(tl.program_id(0) * TOKENS, tokens, tl.num_programs(0) * TOKENS):
        real = (token < tokens - first)[:, None]
        tile = logits_ptr + first.to(tl.int64) * logits_stride
        logits = tl.load(tile + token[:, None] * logits_stride + expert, mask=real, other=0.0)
        score = 1.0 / (1.0 + tl.exp(-logits.to(tl.float32)))
        grouped = tl.reshape(score + bias, (TOKENS * GROUPS, GROUP))
        best = tl.max(grouped, 1)
        best_place = tl.min(tl.where(grouped == best[:, None], place, GROUP), 1)
        second = tl.max(tl.where(place == best_place[:, None], _DROPPED, grouped), 1)
        group_score = tl.reshape(best + second, (TOKENS, GROUPS))
        penalty = tl.full((TOKENS, GROUPS), _DROPPED, tl.float32)
        for _ in range(top_groups):
            top_score = tl.max(group_score, 1)
            top_group = tl.min(tl.where(group_score == top_score[:, None], group, GROUPS), 1)
            chosen = group == top_group[:, None]
            penalty = tl.where(chosen, 0.0, penalty)
            group_score = tl.where(chosen, _DROPPED, group_score)
        grouped += tl.reshape(penalty, (TOKENS * GROUPS,))[:, None]
        choice = tl.reshape(grouped, (TOKENS, EXPERTS))
        weights = tl.zeros((TOKENS, CHOICES), tl.float32)
        ids = tl.zeros((TOKENS, CHOICES), tl.int32)
        for k in range(top_k):
            top = tl.max(choice, 1)
            top_expert = tl.min(tl.where(choice == top[:, None], expert, EXPERTS), 1)
            taken = expert == top_expert[:, None]
            weight = tl.sum(tl.where(taken, score, 0.0), 1)
            choice = tl.where(taken, _DROPPED, choice)
            weights = tl.where(rank == k, weight[:, None], weights)
            ids = tl.where(rank == k, top_expert[:, None], ids)
        if renormalize != 0:
            weights = weights / (tl.sum(weights, 1) + _EPSILON)[:, None]
        out = (first + token)[:, None] * top_k + rank
        inside = real & (rank < top_k)
        tl.store(weights_ptr + out, weights * scaling, mask=inside)
        tl.store(ids_ptr + out, ids, mask=inside)


def gate_topk_grouped_sigmoid_launch(
    logits: torch.Tensor,
    bias: torch.Tensor,
    top_k: int,
    n_group: int,
    topk_group: int,
    renormalize: bool,
    routed_scaling_factor: float,
    on: Backend | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """logits [tokens, experts] float32, rows strided; bias [experts] float32 -> (weights float32,
    ids int32), both [tokens, top_k].

    Raises `OperatorError` outside `SPEC.features`.
    """
    on = on or npu_backend(logits)
    operator.SPEC.check_inputs(
        {
            "logits": logits,
            "bias": bias,
            "top_k": top_k,
            "n_group": n_group,
            "topk_group": topk_group,
        }
    )
    tokens, experts = logits.shape
    for tensor in (logits, bias):
        SPEC.require(
            on.device,
            dtype=tensor.dtype,
            groups=(n_group, experts // n_group),
            top_k=top_k,
            element_stride=tensor.stride(-1),
        )
    weights = torch.empty(tokens, top_k, dtype=torch.float32, device=logits.device)
    ids = torch.empty(tokens, top_k, dtype=torch.int32, device=logits.device)
    share = -(-tokens // vector_programs(on.target, tokens)) if tokens else 0

    def suits(config: KernelConfig) -> bool:
        sizes = config.constexprs
        return (sizes["GROUPS"], sizes["GROUP"]) == (n_group, experts // n_group)

    # As many tokens at a time as a program has, or the most that fit.
    config = choose(
        SPEC,
        on.target,
        suits,
        lambda config: (
            max(share - config.constexprs["TOKENS"], 0),
            config.constexprs["TOKENS"],
        ),
    )
    programs = vector_programs(on.target, -(-tokens // config.constexprs["TOKENS"]))
    on.launch(
        SPEC,
        config,
        (programs,),
        logits,
        bias,
        weights,
        ids,
        tokens,
        logits.stride(0),
        top_k,
        topk_group,
        int(renormalize),
        float(routed_scaling_factor),
    )
    return weights, ids


# (groups, experts of a group): DeepSeek-V3 and R1; Kimi K2, which has one group.
_GROUPS = ((8, 32), (1, 384))


def _configs() -> tuple[KernelConfig, ...]:
    return tuple(
        KernelConfig(
            f"groups{groups}x{group}_tokens{tokens}",
            {"TOKENS": tokens, "GROUPS": groups, "GROUP": group, "CHOICES": 8},
            dtype="fp32",
        )
        for groups, group in _GROUPS
        for tokens in ((1, 8) if groups == 8 else (1, 4))
    )


SPEC = KernelSpec(
    name="gate_topk_grouped_sigmoid",
    kernel=gate_topk_grouped_sigmoid,
    signature={
        "logits_ptr": "*T",
        "bias_ptr": "*fp32",
        "weights_ptr": "*fp32",
        "ids_ptr": "*i32",
        "tokens": "i32",
        "logits_stride": "i32",
        "top_k": "i32",
        "top_groups": "i32",
        "renormalize": "i32",
        "scaling": "fp32",
    },
    configs=_configs(),
    launcher=gate_topk_grouped_sigmoid_launch,
    reference="gate_topk_grouped_sigmoid",
    features={
        "dtype": NpuLimit(HERE, allowed=(torch.float32,)),
        "groups": NpuLimit(HERE, allowed=_GROUPS),
        "top_k": NpuLimit(HERE, maximum=8),
        "element_stride": DENSE,
    },
    work=(
        Work("decode 64 x 256", 0, 64 * (256 * 4 + 8 * 8)),
        Work("prefill 4096 x 256", 0, 4096 * (256 * 4 + 8 * 8)),
    ),
)
KERNELS = (SPEC,)
