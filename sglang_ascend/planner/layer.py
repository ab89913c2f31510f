"""One layer: every node of its graph with a duration, and what the layer adds to a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sglang_ascend.comm.layer_graph import Engine, LayerKind, Node, layer
from sglang_ascend.comm.topology import LinkClass
from sglang_ascend.deploy.deployment import Transport
from sglang_ascend.planner import attention_cost, exchange_cost, expert_cost, schedule
from sglang_ascend.planner.device import Device, Work
from sglang_ascend.planner.layout import Step

_COMPUTE: Mapping[str, Callable[[Device, Step], Work]] = {
    "attention_norm": attention_cost.norm,
    "attention_down": attention_cost.down,
    "attention_in": attention_cost.project,
    "attention": attention_cost.attention,
    "attention_out": attention_cost.out,
    "mlp_norm": attention_cost.norm,
    "mlp": expert_cost.dense_mlp,
    "gate": expert_cost.gate,
    "shared_expert": expert_cost.shared_expert,
    "route": expert_cost.route,
    "experts": expert_cost.experts,
    "unroute": expert_cost.unroute,
    "expert_sum": expert_cost.expert_sum,
}


@dataclass(frozen=True)
class LayerTime:
    """A layer of one micro-batch, and what a stack of such layers takes.

    Attributes:
        nodes: the graph.
        work: of each compute node.
        seconds: of each node.
        bytes_by_link: over all ranks of an instance, by collective and class of link.
        micro_batches: that share the engines; all other figures are of one of them.
        total_s: what one more layer adds to a step, all micro-batches together.
    """

    nodes: tuple[Node, ...]
    work: Mapping[str, Work]
    seconds: Mapping[str, float]
    bytes_by_link: Mapping[str, Mapping[LinkClass, int]]
    micro_batches: int
    total_s: float

    @property
    def network_s(self) -> float:
        """Collectives end to end, overlapped or not, all micro-batches together."""
        names = [node.name for node in self.nodes if node.engine is Engine.NETWORK]
        return self.micro_batches * sum(self.seconds[name] for name in names)


def kind_of(step: Step, moe: bool) -> LayerKind:
    """The layer's graph as the role's features have it."""
    features = step.role.features
    return LayerKind(
        mla=step.shape.is_mla,
        moe=moe,
        attention_tp=step.group,
        world=step.role.ranks,
        dispatch=step.role.transport is Transport.DISPATCH,
        shared_here=step.shared_here,
        flashcomm=features.flashcomm,
        tp_dp_conversion=features.tp_dp_conversion,
        multi_stream=features.multi_stream,
        dense_tp=features.dense_tensor_parallel,
    )


def predict(device: Device, step: Step, moe: bool) -> LayerTime:
    """Time of one layer of a step, in which micro-batches take turns on the engines."""
    batches = step.role.features.micro_batches
    part = dataclasses.replace(step, tokens=step.tokens / batches, requests=step.requests / batches)
    nodes = layer(kind_of(part, moe))
    work: dict[str, Work] = {}
    seconds: dict[str, float] = {}
    links: dict[str, Mapping[LinkClass, int]] = {}
    for node in nodes:
        if node.engine is Engine.NETWORK:
            priced = exchange_cost.price(node.name, device, part)
            seconds[node.name], links[node.name] = priced.seconds, priced.bytes_by_link
        else:
            work[node.name] = _COMPUTE[node.name](device, part)
            seconds[node.name] = work[node.name].seconds
    if step.role.features.prefetch:
        _prefetch(device, part, nodes, work, seconds)
    total = schedule.layer_seconds(nodes, seconds, batches)
    return LayerTime(nodes, work, seconds, links, batches, total)


def _prefetch(device: Device, step: Step, nodes, work, seconds) -> None:
    """Shorten the next layer's projections by the weights that fit into L2 during the combine.

    As many bytes as memory delivers while the layer's last collective runs, no more than L2's
    share; the whole is taken off this layer, since all layers are alike.
    """
    last = [node.name for node in nodes if node.engine is Engine.NETWORK]
    if not last or "chip.l2" not in device.hardware.constants:
        return
    room = device.constants.prefetch_share * device.hardware.si("chip.l2")
    room = min(room, seconds[last[-1]] * device.memory_bytes_per_s)
    shape, width = step.shape, step.weight_width
    columns = shape.heads / step.group * shape.head_dim
    first = min(room, (shape.q_lora or shape.hidden) * columns * width)
    for name, cost, part in (
        ("attention_in", attention_cost.project, first),
        ("attention_out", attention_cost.out, room - first),
    ):
        work[name] = cost(device, step, part)
        seconds[name] = work[name].seconds
