"""The operators of one decoder layer, their order and their engines, declared as data.

The one declaration of what may overlap: a planner gives each node a duration and schedules the
graph; a runtime may launch it. An engine does one node at a time. Nodes of the ``cores`` engine are
kernels (matrix, vector, attention), nodes of ``network`` are collectives; ``after`` is all that a
node waits for besides its engine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Engine(StrEnum):
    CORES = "cores"
    NETWORK = "network"


@dataclass(frozen=True)
class Node:
    """One operator or collective of a layer.

    Attributes:
        name: unique in its graph; micro-batches and layers are told apart by a suffix.
        after: names of the nodes that it waits for.
    """

    name: str
    engine: Engine
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class LayerKind:
    """What decides the graph of a layer.

    Attributes:
        mla: latent attention, else grouped-query attention.
        moe: experts, else one MLP.
        attention_tp: ranks that share the layer's heads.
        world: ranks that share the layer's experts.
        dispatch: tokens go to their experts' ranks only; else every rank gathers all tokens.
        shared_here: this rank computes a shared expert beside its routed ones.
        dense_tp: the MLP of a layer without experts is split over the attention group.
        flashcomm, tp_dp_conversion, multi_stream: see the deployment's features.
    """

    mla: bool
    moe: bool
    attention_tp: int = 1
    world: int = 1
    dispatch: bool = False
    shared_here: bool = False
    flashcomm: bool = True
    tp_dp_conversion: bool = False
    multi_stream: bool = False
    dense_tp: bool = True


def layer(kind: LayerKind) -> tuple[Node, ...]:
    """The graph of one layer, in an order in which a single stream could run it."""
    chain = _Chain(kind)
    _attention(chain, kind)
    if kind.moe:
        _experts(chain, kind)
    else:
        _mlp(chain, kind)
    return tuple(chain.nodes)


class _Chain:
    """Nodes so far; ``then`` appends one after the last, or after those named."""

    def __init__(self, kind: LayerKind):
        self.nodes: list[Node] = []
        self._streams = kind.multi_stream

    def cores(self, name: str, *after: str) -> None:
        self._append(name, Engine.CORES, after)

    def network(self, name: str, *after: str) -> None:
        self._append(name, Engine.NETWORK, after)

    def _append(self, name: str, engine: Engine, after: tuple[str, ...]) -> None:
        if self.nodes and (not after or not self._streams):
            after = (self.nodes[-1].name,)
        self.nodes.append(Node(name, engine, after))


def _attention(chain: _Chain, kind: LayerKind) -> None:
    shared = kind.attention_tp > 1
    chain.cores("attention_norm")
    if kind.mla:
        chain.cores("attention_down")
    if shared and kind.flashcomm:
        chain.network("attention_gather")
    chain.cores("attention_in")
    chain.cores("attention")
    if shared and kind.flashcomm and kind.tp_dp_conversion:
        chain.network("attention_all_to_all")
        chain.cores("attention_out")
    else:
        chain.cores("attention_out")
        if shared:
            name = "attention_reduce_scatter" if kind.flashcomm else "attention_all_reduce"
            chain.network(name)


def _mlp(chain: _Chain, kind: LayerKind) -> None:
    shared = kind.attention_tp > 1 and kind.dense_tp
    chain.cores("mlp_norm")
    if shared and kind.flashcomm:
        chain.network("mlp_gather")
    chain.cores("mlp")
    if shared:
        chain.network("mlp_reduce_scatter" if kind.flashcomm else "mlp_all_reduce")


def _experts(chain: _Chain, kind: LayerKind) -> None:
    """Gate, shared expert and exchange depend on the norm alone: with streams they run abreast."""
    chain.cores("mlp_norm")
    if kind.world == 1:
        chain.cores("gate")
        exchange = "gate"
    elif kind.dispatch:
        chain.cores("gate")
        chain.network("dispatch", "gate")
        exchange = "dispatch"
    elif kind.flashcomm or kind.attention_tp == 1:
        chain.cores("gate", "mlp_norm")
        chain.network("expert_gather", "mlp_norm")
        exchange = "expert_gather"
    else:
        chain.network("expert_gather", "mlp_norm")
        chain.cores("gate", "expert_gather")
        exchange = "gate"
    if kind.shared_here:
        chain.cores("shared_expert", "mlp_norm")
    chain.cores("route", *dict.fromkeys((exchange, "gate")))
    chain.cores("experts", "route")
    chain.cores("unroute", "experts")
    if kind.world > 1:
        name = "expert_all_reduce"
        if kind.dispatch:
            name = "combine"
        elif kind.flashcomm or kind.attention_tp == 1:
            name = "expert_reduce_scatter"
        chain.network(name, "unroute")
        last = name
    else:
        last = "unroute"
    chain.cores("expert_sum", *((last, "shared_expert") if kind.shared_here else (last,)))


def stacked(
    nodes: tuple[Node, ...], layers: int, micro_batches: int = 1
) -> tuple[tuple[Node, ...], ...]:
    """The graph of ``layers`` equal layers, each micro-batch a chain of its own.

    Returns:
        One tuple of nodes a layer, names suffixed with ``/layer/micro-batch``.
    """
    last = nodes[-1].name
    out = []
    for index in range(layers):
        for batch in range(micro_batches):
            tag, before = f"/{index}/{batch}", f"{last}/{index - 1}/{batch}"
            out.append(
                tuple(
                    replace(
                        node,
                        name=node.name + tag,
                        after=tuple(name + tag for name in node.after)
                        or ((before,) if index else ()),
                    )
                    for node in nodes
                )
            )
    return tuple(out)
