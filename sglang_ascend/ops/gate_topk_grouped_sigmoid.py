"""Routing of tokens to experts in groups, with sigmoid scores and a correction bias."""

import torch

from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3, TINY_DEEPSEEK, MlaModel
from sglang_ascend.ops.spec import (
    FLOATS,
    ContractCase,
    NpuLimit,
    Operator,
    OperatorError,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)

_DOC = "aclnnMoeGatingTopK"
# The denominator of the renormalisation never is zero.
_EPSILON = 1e-20

SPEC = OperatorSpec(
    name="gate_topk_grouped_sigmoid",
    summary=(
        "Top-k experts by biased sigmoid score within the best groups; weights are unbiased scores."
    ),
    source="arXiv 2412.19437 section 2.1.2; torch_npu npu_moe_gating_top_k, norm_type 1",
    inputs={
        "logits": TensorSpec(("tokens", "experts"), FLOATS),
        "bias": TensorSpec(("experts",), FLOATS),
    },
    outputs={
        "weights": TensorSpec(("tokens", "top_k"), (torch.float32,)),
        "ids": TensorSpec(("tokens", "top_k"), (torch.int32,)),
    },
    npu_operators=("npu::npu_moe_gating_top_k",),
    npu_limits={
        "experts": NpuLimit(_DOC, maximum=2048),
        "experts, each group rounded up to 32": NpuLimit(_DOC, maximum=2048),
    },
    tolerance=Tolerance(
        "float32 exponentials of another library; experts whose scores tie within rounding may"
        " swap",
        float32=1e-6,
        bfloat16=1e-6,
        float16=1e-6,
    ),
    values=lambda arguments: check_arguments(arguments),
)


def check_arguments(arguments) -> None:
    experts = arguments["logits"].shape[1]
    groups, top_groups, top_k = (arguments[name] for name in ("n_group", "topk_group", "top_k"))
    if groups < 1 or experts % groups or experts // groups < 2:
        raise OperatorError(
            f"{SPEC.name}: n_group must divide {experts} experts into groups of at least 2, got"
            f" {groups}"
        )
    if not 1 <= top_groups <= groups:
        raise OperatorError(f"{SPEC.name}: topk_group must be in 1..{groups}, got {top_groups}")
    if not 1 <= top_k <= experts // groups * top_groups:
        raise OperatorError(
            f"{SPEC.name}: top_k must be in 1..{experts // groups * top_groups}, got {top_k}"
        )


def reference(
    logits: torch.Tensor,
    bias: torch.Tensor,
    top_k: int,
    n_group: int,
    topk_group: int,
    renormalize: bool,
    routed_scaling_factor: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """logits [tokens, experts], bias [experts] -> weights float32, ids int32, both [tokens, top_k].

    The score of a group is the sum of its two best biased scores. ids are ordered by biased score,
    best first; which of two equal scores comes first is not specified. Weights are
    sigmoid(logit), divided by their sum if `renormalize`, times `routed_scaling_factor`.
    """
    tokens, experts = logits.shape
    scores = logits.float().sigmoid()
    choice = scores + bias.float()
    if topk_group < n_group:
        grouped = choice.view(tokens, n_group, experts // n_group)
        group_scores = grouped.topk(2, dim=-1).values.sum(dim=-1)
        best = group_scores.topk(topk_group, dim=-1, sorted=False).indices
        dropped = torch.ones_like(group_scores, dtype=torch.bool).scatter_(1, best, False)
        choice = grouped.masked_fill(dropped.unsqueeze(-1), float("-inf")).view(tokens, experts)
    ids = choice.topk(top_k, dim=-1).indices
    return scale_weights(scores.gather(1, ids), renormalize, routed_scaling_factor), ids.int()


def scale_weights(
    weights: torch.Tensor, renormalize: bool, routed_scaling_factor: float
) -> torch.Tensor:
    if renormalize:
        weights = weights / (weights.sum(dim=-1, keepdim=True) + _EPSILON)
    return weights * routed_scaling_factor


def check_npu_limits(experts: int, n_group: int) -> None:
    SPEC.require_npu("experts", experts)
    group = -(-experts // n_group // 32) * 32
    SPEC.require_npu("experts, each group rounded up to 32", group * n_group)
    if experts // n_group <= 2:
        raise OperatorError(
            f"{SPEC.name} on npu: experts per group is {experts // n_group}, allowed is more"
            f" than 2 ({_DOC})"
        )


def npu(logits, bias, top_k, n_group, topk_group, renormalize, routed_scaling_factor):
    check_npu_limits(logits.shape[1], n_group)
    weights, ids, _ = torch.ops.npu.npu_moe_gating_top_k(
        logits.float(),
        top_k,
        bias=bias.float(),
        k_group=topk_group,
        group_count=n_group,
        group_select_mode=1,
        renorm=0,
        norm_type=1,
        routed_scaling_factor=routed_scaling_factor,
        eps=_EPSILON,
    )
    if not renormalize:
        # The operator always renormalises sigmoid scores.
        weights = logits.float().sigmoid().gather(1, ids.long()) * routed_scaling_factor
    return weights, ids


def _case(label: str, model: MlaModel, tokens: int) -> ContractCase:
    def build(device, dtype):
        return {
            "logits": torch.empty(tokens, model.experts, dtype=dtype, device=device),
            "bias": torch.empty(model.experts, dtype=torch.float32, device=device),
            "top_k": model.top_k,
            "n_group": model.groups,
            "topk_group": model.top_groups,
            "renormalize": True,
            "routed_scaling_factor": 2.5,
        }

    return ContractCase(label, build, torch.float32)


CONTRACT = (
    _case("tiny-deepseek-v3 decode", TINY_DEEPSEEK, 8),
    _case("DeepSeek-V3 prefill", DEEPSEEK_V3, 4096),
)

gate_topk_grouped_sigmoid = Operator(SPEC, reference, npu, CONTRACT)
