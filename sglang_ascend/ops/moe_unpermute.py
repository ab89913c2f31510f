"""Combine expert outputs into tokens: the inverse of `moe_permute` with routing weights."""

import torch

from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3, TINY_DEEPSEEK, MlaModel
from sglang_ascend.ops.spec import (
    FLOATS,
    ContractCase,
    Operator,
    OperatorError,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)

SPEC = OperatorSpec(
    name="moe_unpermute",
    summary=(
        "y[t] = sum over k of weights[t, k] * expert_out[row_index[t * top_k + k]]; -1 adds"
        " nothing."
    ),
    source="torch_npu npu_moe_finalize_routing, drop_pad_mode 3",
    inputs={
        "expert_out": TensorSpec(("rows", "hidden"), FLOATS),
        "row_index": TensorSpec(("tokens*top_k",), (torch.int32,)),
        "weights": TensorSpec(("tokens", "top_k"), FLOATS),
    },
    outputs={"y": TensorSpec(("tokens", "hidden"), like="expert_out")},
    npu_operators=("npu::npu_moe_finalize_routing",),
    tolerance=Tolerance(
        "float32 sums in another order; the NPU takes the routing weights in the dtype of the rows",
        float32=1e-6,
        bfloat16=2**-6,
        float16=2**-9,
    ),
    values=lambda arguments: check_arguments(arguments),
)


def check_arguments(arguments) -> None:
    index, rows = arguments["row_index"], arguments["expert_out"].shape[0]
    if index.numel() and not -1 <= int(index.min()) <= int(index.max()) < rows:
        raise OperatorError(
            f"{SPEC.name}: row_index must be in -1..{rows - 1}, got"
            f" {int(index.min())}..{int(index.max())}"
        )


def reference(
    expert_out: torch.Tensor, row_index: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """expert_out [rows, hidden], row_index [tokens * top_k] int32, weights [tokens, top_k].

    Returns y [tokens, hidden] in the dtype of expert_out, summed in float32. Rows that no index
    names are not read.
    """
    tokens, top_k = weights.shape
    hidden = expert_out.shape[1]
    skipped = row_index < 0
    if expert_out.shape[0] == 0 or bool(skipped.all()):
        return expert_out.new_zeros(tokens, hidden)
    # A skipped choice reads a row that some token uses, so that its weight 0 makes it vanish.
    used = row_index.max()
    rows = expert_out.index_select(0, torch.where(skipped, used, row_index)).view(
        tokens, top_k, hidden
    )
    weights = weights.float().masked_fill(skipped.view(tokens, top_k), 0.0)
    return torch.bmm(weights.unsqueeze(1), rows.float()).squeeze(1).to(expert_out.dtype)


def npu(expert_out, row_index, weights):
    # Mode 3: indices by token, -1 allowed; rows as [experts, capacity, hidden] with capacity 1.
    return torch.ops.npu.npu_moe_finalize_routing(
        expert_out.unsqueeze(1),
        None,
        None,
        None,
        weights.to(expert_out.dtype),
        row_index,
        None,
        drop_pad_mode=3,
    )


def _case(label: str, model: MlaModel, tokens: int) -> ContractCase:
    def build(device, dtype):
        pairs = tokens * model.top_k
        return {
            "expert_out": torch.zeros(pairs, model.hidden, dtype=dtype, device=device),
            "row_index": torch.zeros(pairs, dtype=torch.int32, device=device),
            "weights": torch.zeros(tokens, model.top_k, dtype=torch.float32, device=device),
        }

    return ContractCase(label, build)


CONTRACT = (
    _case("tiny-deepseek-v3 decode", TINY_DEEPSEEK, 8),
    _case("DeepSeek-V3 prefill", DEEPSEEK_V3, 4096),
)

moe_unpermute = Operator(SPEC, reference, npu, CONTRACT)
