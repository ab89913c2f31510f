"""Bring the experts' outputs back to their tokens and add them up: the other half of dispatch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sglang_ascend.ops import moe_distribute_dispatch, moe_unpermute
from sglang_ascend.ops.expert_parallel import (
    ExpertParallel,
    NpuState,
    ReferenceState,
    check_npu_call,
    check_slots,
    npu_tokens,
)
from sglang_ascend.ops.spec import (
    FLOATS,
    ContractCase,
    Operator,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)

SPEC = OperatorSpec(
    name="moe_distribute_combine",
    summary=(
        "y[t] = sum over k of weights[t, k] * the output of expert ids[t, k], plus the shared"
        " expert's where it has ranks of its own; -1 adds nothing."
    ),
    source="torch_npu npu_moe_distribute_combine_v2; protocol: its design notes in CANN",
    inputs={
        "expert_out": TensorSpec(("rows", "hidden"), FLOATS),
        "ids": TensorSpec(("tokens", "top_k"), (torch.int32,)),
        "weights": TensorSpec(("tokens", "top_k"), (torch.float32,)),
    },
    outputs={"y": TensorSpec(("tokens", "hidden"), like="expert_out")},
    npu_operators=("npu::npu_moe_distribute_combine_v2",),
    tolerance=Tolerance(
        "float32 sums in another order; one rounding of the result to a 16-bit dtype",
        float32=1e-6,
        bfloat16=2**-7,
        float16=2**-10,
    ),
    values=lambda arguments: check_slots(SPEC.name, arguments),
)


def reference(
    expert_out: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    state: ReferenceState,
    ep: ExpertParallel,
    token_counts: Sequence[int],
    where: Any = None,
) -> torch.Tensor:
    """expert_out [rows, hidden] as dispatch's rows were, ids and weights [tokens, top_k] -> y.

    All ranks of ep.group call it together, with the `state` of their dispatch. expert_out may end
    where the rows that dispatch specified end. y [tokens, hidden] in the dtype of expert_out,
    summed in float32; the weight of an id of -1 is not read.

    Rows return in the order in which they came, so each source finds them where it sent them from.
    """
    tokens, hidden = len(ids), expert_out.shape[1]
    back = torch.empty(len(state.order), hidden, dtype=expert_out.dtype)
    back.index_copy_(0, state.order, expert_out[: len(state.order)])
    window = ep.windows.take(sum(state.send_counts), hidden * back.element_size())
    rows = ep.group.all_to_all_rows(back, state.recv_counts, state.send_counts, where, out=window)
    if not ep.shared_ranks:
        return moe_unpermute.reference(rows, state.row_index, weights)
    routed = moe_unpermute.reference(rows[tokens:].float(), state.row_index, weights)
    return (routed + rows[:tokens]).to(expert_out.dtype)


def npu(expert_out, ids, weights, state, ep, token_counts, where=None):
    check_npu_call(SPEC.name, expert_out, ids, ep, token_counts)
    y = torch.ops.npu.npu_moe_distribute_combine_v2(
        expert_out,
        state.ids,
        state.assist_info,
        state.ep_counts,
        state.weights,
        ep.group.hccl_name,
        ep.group.size,
        ep.group.rank,
        ep.slots,
        tp_send_counts=state.tp_counts,
        x_active_mask=state.active,
        expand_scales=state.expand_scales,
        shared_expert_rank_num=ep.shared_ranks,
        global_bs=max(token_counts) * ep.group.size,
        comm_alg=ep.algorithm,
    )
    return y[: len(ids)]


def _case(dispatch: ContractCase) -> ContractCase:
    """The combine of a dispatch: `state` is as the device's dispatch returns it."""

    def build(device, dtype):
        arguments = dispatch.build(device, dtype)
        x, ids, ep, counts = (arguments[name] for name in ("x", "ids", "ep", "token_counts"))
        capacity = ep.capacity(counts, ids.shape[1])
        if device.type == "cpu":
            *_, state = moe_distribute_dispatch.reference(**arguments)
        else:
            state = _npu_state(arguments, capacity)
        return {
            "expert_out": torch.zeros(capacity, x.shape[1], dtype=dtype, device=device),
            "ids": ids,
            "weights": arguments["weights"],
            "state": state,
            "ep": ep,
            "token_counts": counts,
        }

    return ContractCase(dispatch.label, build)


def _npu_state(arguments, capacity) -> NpuState:
    """Empty tensors of the shapes that torch_npu infers for dispatch's results."""
    x, ids, weights, ep, token_counts = list(arguments.values())[:5]
    longest, ranks, a2 = max(token_counts), ep.group.size, ep.product == "A2"
    _, ids, weights, active = npu_tokens(x, ids, weights, ep, longest)
    counts = ranks * ep.local_slots
    if a2:
        counts += ranks * longest * 2 * ids.shape[1] * (ranks // 8)
    return NpuState(
        ids=ids,
        weights=weights,
        active=active,
        assist_info=ids.new_empty(128 * capacity),
        ep_counts=ids.new_empty(counts),
        tp_counts=ids.new_empty(0),
        expand_scales=weights.new_empty(capacity) if a2 else None,
    )


CONTRACT = tuple(_case(dispatch) for dispatch in moe_distribute_dispatch.CONTRACT)

moe_distribute_combine = Operator(SPEC, reference, npu, CONTRACT)
