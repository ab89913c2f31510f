"""Collectives of a layer, priced by the formulas of ``comm``."""

from __future__ import annotations

from sglang_ascend.comm import cost_dedup, cost_uniform
from sglang_ascend.comm.cost import CollectiveCost
from sglang_ascend.comm.gather_load import Algorithm
from sglang_ascend.comm.topology import Topology
from sglang_ascend.planner.device import Device
from sglang_ascend.planner.expert_cost import rows
from sglang_ascend.planner.layout import Step

_SCALE_BYTES = 512  # beside a quantised row on the wire (arXiv 2506.12708)


def price(name: str, device: Device, step: Step) -> CollectiveCost:
    """The cost of the network node ``name`` of the layer graph."""
    return _BY_NAME[name](device, step)


def _algorithm(step: Step) -> Algorithm:
    return "two_level" if step.role.features.two_level else "one_level"


def _gather(device: Device, place: Topology, step: Step, tokens: float, row: float):
    return cost_uniform.all_gather(place, device.hardware, tokens * row, _algorithm(step))


def _wire_row(step: Step) -> float:
    row = step.shape.hidden * step.wire_width
    return row + (_SCALE_BYTES if step.wire_width < step.wide_width else 0)


def _wide_row(step: Step) -> float:
    return step.shape.hidden * step.wide_width


def attention_gather(device: Device, step: Step) -> CollectiveCost:
    """MLA gathers what the down-projections left of a token; GQA the quantised token."""
    shape = step.shape
    row = shape.hidden * step.narrow_width
    if shape.is_mla:
        latent = (shape.kv_lora + shape.rope_dim) * step.wide_width
        row = (shape.q_lora or shape.hidden) * step.narrow_width + latent
    return _gather(device, step.group_topology, step, step.share, row)


def attention_all_to_all(device: Device, step: Step) -> CollectiveCost:
    """Each rank's heads of all the group's tokens become all heads of a rank's tokens."""
    shape, place = step.shape, step.group_topology
    piece = step.share * shape.heads / step.group * shape.v_dim * step.wide_width
    return cost_uniform.all_to_all(place, device.hardware, piece)


def group_scatter(device: Device, step: Step) -> CollectiveCost:
    """Reduce-scatter of the group's tokens."""
    return _gather(device, step.group_topology, step, step.share, _wide_row(step))


def group_reduce(device: Device, step: Step) -> CollectiveCost:
    """All-reduce of the group's tokens."""
    return cost_uniform.all_reduce(
        step.group_topology, device.hardware, step.tokens * _wide_row(step), _algorithm(step)
    )


def mlp_gather(device: Device, step: Step) -> CollectiveCost:
    """Quantised tokens of the group before a split MLP."""
    row = step.shape.hidden * step.narrow_width
    return _gather(device, step.group_topology, step, step.share, row)


def expert_gather(device: Device, step: Step) -> CollectiveCost:
    """Every rank gets all tokens: quantised with FlashComm, else as they are.

    Without FlashComm each rank of a group holds all the group's tokens; the groups exchange them
    rank by rank of equal place.
    """
    if step.role.features.flashcomm or step.group == 1:
        return _gather(device, step.role.topology, step, step.share, _wire_row(step))
    place = step.role.topology
    across = Topology(max(1, place.world_size // step.group), 1, 1)
    if step.group < place.ranks_per_node:
        across = Topology(place.nodes, place.ranks_per_node // step.group, 1)
    return _gather(device, across, step, step.tokens, _wide_row(step))


def expert_scatter(device: Device, step: Step) -> CollectiveCost:
    """Sums of all ranks' experts, each rank its own tokens."""
    return _gather(device, step.role.topology, step, step.share, _wide_row(step))


def expert_reduce(device: Device, step: Step) -> CollectiveCost:
    """Sums of all ranks' experts, every rank all tokens."""
    nbytes = step.world_tokens * _wide_row(step)
    return cost_uniform.all_reduce(step.role.topology, device.hardware, nbytes, _algorithm(step))


def dispatch(device: Device, step: Step) -> CollectiveCost:
    """Rows to their experts."""
    return _rows_exchange(device, step, _wire_row(step))


def combine(device: Device, step: Step) -> CollectiveCost:
    """Rows back."""
    row = _wire_row(step) if step.role.features.quantised_combine else _wide_row(step)
    return _rows_exchange(device, step, row)


def _rows_exchange(device: Device, step: Step, row: float) -> CollectiveCost:
    role, shape = step.role, step.shape
    place, skew = role.topology, rows(device, step).skew
    if role.features.node_dedup:
        limit = shape.config.get("topk_group") if shape.config.get("n_group", 1) > 1 else None
        return cost_dedup.exchange(
            place, device.hardware, step.share, shape.top_k, row, skew, limit
        )
    extra = role.shared_ranks > 0
    return cost_uniform.dispatch(place, device.hardware, step.share, shape.top_k + extra, skew, row)


_BY_NAME = {
    "attention_gather": attention_gather,
    "attention_all_to_all": attention_all_to_all,
    "attention_reduce_scatter": group_scatter,
    "attention_all_reduce": group_reduce,
    "mlp_gather": mlp_gather,
    "mlp_reduce_scatter": group_scatter,
    "mlp_all_reduce": group_reduce,
    "expert_gather": expert_gather,
    "expert_reduce_scatter": expert_scatter,
    "expert_all_reduce": expert_reduce,
    "dispatch": dispatch,
    "combine": combine,
}
