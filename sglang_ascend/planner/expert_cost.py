"""Durations of a layer's second half on one rank: gate, experts, and what sorts their rows."""

from __future__ import annotations

from dataclasses import dataclass

from sglang_ascend.deploy.deployment import SharedExpert, Transport
from sglang_ascend.planner import imbalance
from sglang_ascend.planner.device import NOTHING, Device, Work
from sglang_ascend.planner.layout import Step


@dataclass(frozen=True)
class Rows:
    """Rows of routed experts.

    Attributes:
        mean: of a rank that holds routed experts.
        busiest: of the busiest such rank.
        shared: of a rank that holds a shared expert only, or 0.
        active_slots: expert slots of a rank that get any row.
    """

    mean: float
    busiest: float
    shared: float
    active_slots: float

    @property
    def skew(self) -> float:
        return self.busiest / self.mean if self.mean else 1.0


def rows(device: Device, step: Step) -> Rows:
    """How the tokens of all ranks fall on the ranks' experts."""
    shape, role = step.shape, step.role
    total = step.world_tokens * shape.top_k
    mean = total / step.holders
    slots = role.slots_per_rank(shape.experts)
    skew = device.constants.expert_skew
    if not role.features.balanced_experts:
        skew *= device.constants.unbalanced_skew
    uneven = imbalance.systematic(shape.experts, slots * step.holders, step.holders, skew)
    busiest = mean * uneven * imbalance.by_chance(mean, step.holders)
    chance_idle = (1 - 1 / (slots * step.holders)) ** total
    shared = step.world_tokens / role.shared_ranks if role.shared_ranks else 0.0
    return Rows(mean, min(busiest, total), shared, slots * (1 - chance_idle))


def gate(device: Device, step: Step) -> Work:
    """Scores of all experts and the choice of top-k, then quantisation for the wire.

    Without FlashComm, a rank of a tensor-parallel group scores all tokens that it gathered.
    """
    shape = step.shape
    tokens = step.share
    if not step.role.features.flashcomm and step.group > 1:
        tokens = step.world_tokens if step.role.transport is Transport.ALLGATHER else step.tokens
    weights = shape.hidden * shape.experts * step.wide_width
    row = shape.hidden * step.wide_width + shape.experts * 4
    scores = device.matmul(tokens, shape.hidden, shape.experts, step.wide, weights, row)
    return scores + device.vector(tokens * (shape.experts * 8 + shape.hidden * step.narrow_width))


def shared_expert(device: Device, step: Step) -> Work:
    """The shared expert beside the routed ones."""
    shape = step.shape
    if not step.shared_here:
        return NOTHING
    parts = step.group if step.role.shared_expert is SharedExpert.TENSOR_PARALLEL else 1
    tokens = step.tokens if parts > 1 else step.token_wise
    width = shape.shared_experts * shape.expert_intermediate / parts
    return mlp_of(device, step, tokens, width, 1.0)


def experts(device: Device, step: Step) -> Work:
    """Grouped matrix products of the busiest rank, or of a rank with the shared expert alone."""
    shape, found = step.shape, rows(device, step)
    width = shape.expert_intermediate
    routed = mlp_of(device, step, found.busiest, width, found.active_slots)
    if not found.shared:
        return routed
    alone = mlp_of(device, step, found.shared, shape.shared_experts * width, 1.0)
    return max(routed, alone, key=lambda work: work.seconds)


def dense_mlp(device: Device, step: Step) -> Work:
    """The MLP of a layer without experts, split over the attention group or whole."""
    if step.role.features.dense_tensor_parallel:
        return mlp_of(device, step, step.tokens, step.shape.intermediate / step.group, 1.0)
    return mlp_of(device, step, step.token_wise, step.shape.intermediate, 1.0)


def mlp_of(device: Device, step: Step, count: float, width: float, groups: float) -> Work:
    """Gate and up projection, SwiGLU with quantisation, down projection.

    Args:
        count: rows over all groups.
        width: intermediate elements.
        groups: experts, each with weights of its own.
    """
    hidden, narrow, wide = step.shape.hidden, step.narrow_width, step.wide_width
    weights = groups * hidden * width * step.weight_width
    up_row, down_row = hidden * narrow + 2 * width * wide, width * narrow + hidden * wide
    up = device.matmul(count, hidden, 2 * width, step.narrow, 2 * weights, up_row, groups)
    act = device.vector(count * width * (2 * wide + narrow))
    return up + act + device.matmul(count, width, hidden, step.narrow, weights, down_row, groups)


def route(device: Device, step: Step) -> Work:
    """Sort rows by expert. After an all-gather every rank looks through all tokens' choices."""
    found, hidden = rows(device, step), step.shape.hidden
    moved = found.busiest * hidden * 2 * step.wire_width
    if step.role.transport is Transport.ALLGATHER:
        moved += step.world_tokens * step.shape.top_k * 4 * 4
    return device.vector(moved, kernels=2)


def unroute(device: Device, step: Step) -> Work:
    """Weighted rows back in the order of tokens.

    After an all-gather a rank adds its experts' part to a row for each of all ranks' tokens.
    """
    found, hidden = rows(device, step), step.shape.hidden
    moved = found.busiest * hidden * step.wide_width
    if step.role.transport is Transport.ALLGATHER and step.role.ranks > 1:
        moved += step.world_tokens * hidden * step.wide_width
    else:
        moved += found.busiest * hidden * step.wide_width
    return device.vector(moved)


def expert_sum(device: Device, step: Step) -> Work:
    """What came back, plus the shared expert: with dispatch, top-k rows a token."""
    incoming = 1 if step.role.transport is Transport.ALLGATHER else step.shape.top_k
    row = step.shape.hidden * step.wide_width * (incoming + 2)
    return device.vector(step.token_wise * row)
