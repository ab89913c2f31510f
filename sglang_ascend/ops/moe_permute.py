"""Sort (token, expert) pairs by expert, for the experts of one rank."""

import torch

from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3, TINY_DEEPSEEK, MlaModel
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

SPEC = OperatorSpec(
    name="moe_permute",
    summary=(
        "Rows of x repeated per chosen expert and sorted by expert; pairs of other ranks are left"
        " out."
    ),
    source="torch_npu npu_moe_init_routing_v2 with active_expert_range",
    inputs={
        "x": TensorSpec(("tokens", "hidden"), FLOATS),
        "ids": TensorSpec(("tokens", "top_k"), INTS),
    },
    outputs={
        "sorted_x": TensorSpec(("tokens*top_k", "hidden"), like="x"),
        "row_index": TensorSpec(("tokens*top_k",), (torch.int32,)),
        "tokens_per_expert": TensorSpec(("local_experts",), (torch.int64,)),
    },
    npu_operators=("npu::npu_moe_init_routing_v2",),
    npu_limits={"expert_end": NpuLimit("aclnnMoeInitRoutingV3: expertNum", maximum=10239)},
    tolerance=Tolerance("a move: exact, except for the unspecified rows"),
    values=lambda arguments: check_arguments(arguments),
)


def check_arguments(arguments) -> None:
    start, end = arguments["expert_start"], arguments["expert_end"]
    if not 0 <= start < end:
        raise OperatorError(
            f"{SPEC.name}: expert_start must be in 0..expert_end - 1, got {start} with"
            f" expert_end {end}"
        )


def reference(
    x: torch.Tensor, ids: torch.Tensor, expert_start: int, expert_end: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x [tokens, hidden], ids [tokens, top_k] -> (sorted_x, row_index, tokens_per_expert).

    Pairs whose id is not in expert_start..expert_end - 1 are skipped, -1 among them.
    sorted_x [tokens * top_k, hidden]: rows of the remaining pairs by expert, in token order within
    one expert; rows behind their number are unspecified. row_index [tokens * top_k] int32: row in
    sorted_x of pair (token, choice) at token * top_k + choice, -1 if skipped. tokens_per_expert
    [expert_end - expert_start] int64.
    """
    tokens, top_k = ids.shape
    experts = expert_end - expert_start
    local = ids.flatten().long() - expert_start
    local = local.masked_fill((local < 0) | (local >= experts), experts)
    tokens_per_expert = torch.bincount(local, minlength=experts + 1)[:experts]
    pairs = int(tokens_per_expert.sum())
    order = local.argsort(stable=True)[:pairs]
    # Zeros, so that unspecified rows are at least finite on the reference device.
    allocate = x.new_empty if pairs == tokens * top_k else x.new_zeros
    sorted_x = allocate(tokens * top_k, x.shape[1])
    torch.index_select(x, 0, order // top_k, out=sorted_x[:pairs])
    row_index = torch.full((tokens * top_k,), -1, dtype=torch.int32)
    row_index[order] = torch.arange(pairs, dtype=torch.int32)
    return sorted_x, row_index, tokens_per_expert


def npu(x, ids, expert_start, expert_end):
    SPEC.require_npu("expert_end", expert_end)
    # The operator wants every id below its expert count: one number more stands for all skipped
    # ids.
    skipped = (ids < expert_start) | (ids >= expert_end)
    sorted_x, row_index, tokens_per_expert, _ = torch.ops.npu.npu_moe_init_routing_v2(
        x,
        ids.masked_fill(skipped, expert_end).int(),
        active_num=ids.numel(),
        expert_num=expert_end + 1,
        drop_pad_mode=0,
        expert_tokens_num_type=1,
        expert_tokens_num_flag=True,
        quant_mode=-1,
        active_expert_range=[expert_start, expert_end],
        row_idx_type=0,
    )
    return sorted_x, row_index, tokens_per_expert


def _case(label: str, model: MlaModel, tokens: int, start: int, end: int) -> ContractCase:
    def build(device, dtype):
        return {
            "x": torch.zeros(tokens, model.hidden, dtype=dtype, device=device),
            "ids": torch.zeros(tokens, model.top_k, dtype=torch.int32, device=device),
            "expert_start": start,
            "expert_end": end,
        }

    return ContractCase(label, build)


CONTRACT = (
    _case("tiny-deepseek-v3 decode", TINY_DEEPSEEK, 8, 0, 16),
    _case("DeepSeek-V3 prefill, EP 32", DEEPSEEK_V3, 4096, 248, 256),
)

moe_permute = Operator(SPEC, reference, npu, CONTRACT)
