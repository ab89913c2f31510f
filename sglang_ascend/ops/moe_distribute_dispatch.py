"""Send each token to the ranks of its experts: the first half of Dispatch/Combine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sglang_ascend.ops import dynamic_quant, moe_permute
from sglang_ascend.ops.contract_group import StandInGroup
from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3, TINY_DEEPSEEK, MlaModel
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
    Opaque,
    Operator,
    OperatorError,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)

SPEC = OperatorSpec(
    name="moe_distribute_dispatch",
    summary="Rows of all ranks that chose an expert of this rank, by expert, then by source rank.",
    source="torch_npu npu_moe_distribute_dispatch_v2; protocol: its design notes in CANN",
    inputs={
        "x": TensorSpec(("tokens", "hidden"), FLOATS),
        "ids": TensorSpec(("tokens", "top_k"), (torch.int32,)),
        "weights": TensorSpec(("tokens", "top_k"), (torch.float32,)),
    },
    outputs={
        "rows": TensorSpec(("capacity", "hidden"), (*FLOATS, torch.int8)),
        "scales": TensorSpec(("capacity",), (torch.float32,), optional=True),
        "tokens_per_expert": TensorSpec(("local_slots",), (torch.int64,)),
        "state": Opaque("moe_distribute_combine"),
    },
    npu_operators=("npu::npu_moe_distribute_dispatch_v2",),
    tolerance=Tolerance("a move: exact; quantised as in dynamic_quant"),
    values=lambda arguments: check_slots(SPEC.name, arguments),
)


def reference(
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    ep: ExpertParallel,
    token_counts: Sequence[int],
    quantized: bool,
    where: Any = None,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, ReferenceState]:
    """x [tokens, hidden], ids [tokens, top_k] int32 -> (rows, scales, tokens_per_expert, state).

    All ranks of ep.group call it together. token_counts: tokens of every rank, the same on all.
    weights [tokens, top_k] float32: A2 sends them along; others do not read them. where: for
    errors of the group.

    rows [capacity, hidden] in the dtype of x, or int8 with scales [capacity] float32 if quantized:
    by local slot, then source rank, then token; rows behind the sum of tokens_per_expert
    [local slots] int64 are unspecified, capacity being room for the most that can arrive. On a
    rank of the shared expert: the tokens of the ranks that it serves, as one slot.

    One message goes to each rank: how many rows for each of its slots, then the rows.
    """
    group = ep.group
    wire = _pack(x, quantized)
    sorted_rows, row_index, sent = moe_permute.reference(wire, ids, 0, ep.slots)
    head = torch.zeros(group.size, ep.slots_per_rank, dtype=torch.int32)
    head[ep.shared_ranks :] = sent.view(-1, ep.slots_per_rank)
    if ep.shared_ranks:
        head[group.rank % ep.shared_ranks, 0] = len(x)
        sorted_rows = torch.cat((wire, sorted_rows))
    send_counts = head.sum(1).tolist()
    bounds = [
        [ep.rows_bound(source, target, tokens, ids.shape[1]) for target in range(group.size)]
        for source, tokens in enumerate(token_counts)
    ]
    _check_distinct(send_counts, bounds[group.rank], len(x))
    if max(map(max, bounds)) * wire.shape[1] <= ep.eager_bytes:
        received, counts = _exchange_eager(sorted_rows, head, send_counts, bounds, ep, where)
    else:
        received, counts = _exchange_exact(sorted_rows, head, send_counts, ep, where)
    counts = counts[:, : ep.local_slots]

    order, total = _by_slot(counts)
    capacity, width = ep.capacity(token_counts, ids.shape[1]), x.shape[1]
    state = ReferenceState(row_index, order, send_counts, counts.sum(1).tolist())
    if not quantized:
        rows = x.new_empty(capacity, width)
        torch.index_select(received.view(x.dtype), 0, order, out=rows[:total])
        return rows, None, counts.sum(0), state
    rows, scales = x.new_empty(capacity, width, dtype=torch.int8), torch.empty(capacity)
    arrived = received.index_select(0, order)
    scales[:total] = arrived[:, :4].reshape(-1).view(torch.float32)
    rows[:total] = arrived[:, 4:].view(torch.int8)
    return rows, scales, counts.sum(0), state


def _pack(x, quantized) -> torch.Tensor:
    """Rows as they travel [tokens, bytes] uint8: quantised ones behind their float32 scale."""
    if not quantized:
        return x.contiguous().view(torch.uint8)
    q, scale = dynamic_quant.reference(x)
    return torch.cat((scale.unsqueeze(1).view(torch.uint8), q.view(torch.uint8)), 1)


def _check_distinct(send_counts, bounds, tokens) -> None:
    for target, (count, bound) in enumerate(zip(send_counts, bounds)):
        if count > bound:
            raise OperatorError(
                f"{SPEC.name}: a token chose a slot twice: {count} rows for rank {target},"
                f" {tokens} tokens can have at most {bound}"
            )


def _exchange_exact(rows, head, send, ep, where):
    """Counts, then exactly the rows: two exchanges, no padding."""
    group, ones = ep.group, [1] * ep.group.size
    counts = group.all_to_all_rows(head, ones, ones, where)
    receive = counts.sum(1).tolist()
    window = ep.windows.take(sum(receive), rows.shape[1])
    return group.all_to_all_rows(rows[: sum(send)], send, receive, where, out=window), counts


def _exchange_eager(rows, head, send_counts, bounds, ep, where):
    """Counts in front of the rows, padded to the bound that every rank knows: one exchange."""
    group, width = ep.group, rows.shape[1]
    head_rows = -(-head.shape[1] * head.element_size() // width)
    send = [head_rows + bound for bound in bounds[group.rank]]
    receive = [head_rows + sent[group.rank] for sent in bounds]
    message = torch.empty(sum(send), width, dtype=torch.uint8)
    start = taken = 0
    for head_row, size, count in zip(head, send, send_counts):
        _head_bytes(message, start, head_rows)[: 4 * len(head_row)] = head_row.view(torch.uint8)
        message[start + head_rows : start + head_rows + count] = rows[taken : taken + count]
        start, taken = start + size, taken + count
    window = ep.windows.take(sum(receive), width)
    group.all_to_all_rows(message, send, receive, where, out=window)

    counts, parts, start = torch.empty_like(head), [], 0
    for count, size in zip(counts, receive):
        count.view(torch.uint8).copy_(_head_bytes(window, start, head_rows)[: 4 * len(count)])
        first = start + head_rows
        parts.append(window[first : first + int(count.sum())])
        start += size
    return torch.cat(parts), counts


def _head_bytes(message, start, head_rows) -> torch.Tensor:
    return message[start : start + head_rows].view(-1)


def _by_slot(counts) -> tuple[torch.Tensor, int]:
    """counts [ranks, local slots] of rows by source and slot -> their order by slot and source.

    The prefix sum of the transposed counts is what the NPU calls epRecvCount: where each (slot,
    source) ends in the result.
    """
    first = (counts.flatten().cumsum(0) - counts.flatten()).view(counts.shape)
    by_slot = counts.t().flatten()
    ends = by_slot.cumsum(0)
    total = int(ends[-1])
    shift = first.t().flatten() - (ends - by_slot)
    return torch.arange(total) + shift.repeat_interleave(by_slot, output_size=total), total


def npu(x, ids, weights, ep, token_counts, quantized, where=None):
    """A2 masks whole tokens only, and behind the others: an id of -1 must stand in a token without
    any expert, at the end. Its hierarchical algorithm masks nothing: no id may be -1. On A3 a token
    without any expert takes no part at all, so that a shared expert does not see it either.
    """
    check_npu_call(SPEC.name, x, ids, ep, token_counts)
    rows, ids, weights, active = npu_tokens(x, ids, weights, ep, max(token_counts))
    a2 = ep.product == "A2"
    rows, scales, assist_info, tokens_per_expert, ep_counts, tp_counts, expand_scales = (
        torch.ops.npu.npu_moe_distribute_dispatch_v2(
            rows,
            ids,
            ep.group.hccl_name,
            ep.group.size,
            ep.group.rank,
            ep.slots,
            x_active_mask=active,
            expert_scales=weights if a2 else None,
            shared_expert_rank_num=ep.shared_ranks,
            quant_mode=2 if quantized else 0,
            global_bs=max(token_counts) * ep.group.size,
            expert_token_nums_type=1,
            comm_alg=ep.algorithm,
        )
    )
    expand_scales = expand_scales if a2 else None
    state = NpuState(ids, weights, active, assist_info, ep_counts, tp_counts, expand_scales)
    return rows, scales if quantized else None, tokens_per_expert, state


def _case(label, model: MlaModel, tokens, ranks, product, algorithm="", quantized=False, shared=0):
    def build(device, dtype):
        ep = ExpertParallel(
            StandInGroup(rank=shared, size=ranks), model.experts, shared, product, algorithm
        )
        return {
            "x": torch.zeros(tokens, model.hidden, dtype=dtype, device=device),
            # No experts: slots of a token are distinct, which zeros would not be.
            "ids": torch.full((tokens, model.top_k), -1, dtype=torch.int32, device=device),
            "weights": torch.zeros(tokens, model.top_k, dtype=torch.float32, device=device),
            "ep": ep,
            "token_counts": (tokens,) * ranks,
            "quantized": quantized,
        }

    return ContractCase(label, build)


CONTRACT = (
    _case("DeepSeek-V3 decode, A2 EP 32", DEEPSEEK_V3, 64, 32, "A2", "fullmesh"),
    _case("DeepSeek-V3 decode, A2 EP 32, INT8", DEEPSEEK_V3, 81, 32, "A2", "hierarchy", True),
    _case("DeepSeek-V3 decode, A3 EP 256, INT8", DEEPSEEK_V3, 96, 256, "A3", "", True),
    _case("DeepSeek-V3 decode, A3 EP 64 + 32 shared", DEEPSEEK_V3, 48, 96, "A3", "", True, 32),
    _case("tiny-deepseek-v3 on A2, EP 8", TINY_DEEPSEEK, 8, 8, "A2", "fullmesh"),
)

moe_distribute_dispatch = Operator(SPEC, reference, npu, CONTRACT)
