"""Routing of tokens to the top-k experts by softmax score."""

import torch

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

SPEC = OperatorSpec(
    name="gate_topk_softmax",
    summary="The k largest softmax probabilities and their experts.",
    source="arXiv 2101.03961; torch_npu npu_moe_gating_top_k_softmax_v2",
    inputs={"logits": TensorSpec(("tokens", "experts"), FLOATS)},
    outputs={
        "weights": TensorSpec(("tokens", "top_k"), (torch.float32,)),
        "ids": TensorSpec(("tokens", "top_k"), (torch.int32,)),
    },
    npu_operators=("npu::npu_moe_gating_top_k_softmax_v2",),
    npu_limits={"top_k": NpuLimit("aclnnMoeGatingTopKSoftmaxV2", maximum=1024)},
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
    experts, top_k = arguments["logits"].shape[1], arguments["top_k"]
    if not 1 <= top_k <= experts:
        raise OperatorError(f"{SPEC.name}: top_k must be in 1..{experts}, got {top_k}")


def reference(
    logits: torch.Tensor, top_k: int, renormalize: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """logits [tokens, experts] -> weights float32, ids int32, both [tokens, top_k], best first.

    Weights are softmax probabilities over all experts, or over the chosen ones if `renormalize`.
    """
    logits = logits.float()
    if renormalize:
        # Renormalised probabilities are the softmax of the chosen logits.
        top, ids = logits.topk(top_k, dim=-1)
        return top.softmax(-1), ids.int()
    weights, ids = logits.softmax(-1).topk(top_k, dim=-1)
    return weights, ids.int()


def npu(logits, top_k, renormalize):
    SPEC.require_npu("top_k", top_k)
    weights, ids, _ = torch.ops.npu.npu_moe_gating_top_k_softmax_v2(
        logits.float(), k=top_k, renorm=int(renormalize)
    )
    return weights, ids


def _case(label: str, tokens: int, experts: int, top_k: int, renormalize: bool) -> ContractCase:
    def build(device, dtype):
        logits = torch.empty(tokens, experts, dtype=dtype, device=device)
        return {"logits": logits, "top_k": top_k, "renormalize": renormalize}

    return ContractCase(label, build, torch.float32)


CONTRACT = (
    _case("128 experts decode", 8, 128, 8, True),
    _case("64 experts prefill", 4096, 64, 6, False),
)

gate_topk_softmax = Operator(SPEC, reference, npu, CONTRACT)
