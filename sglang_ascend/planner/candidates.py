"""Every instance of a role that a search looks at: size, parallelism, transport, copies."""

from __future__ import annotations

from collections.abc import Iterator

from sglang_ascend.comm.hardware import Hardware
from sglang_ascend.comm.topology import Topology
from sglang_ascend.deploy import deployment_check
from sglang_ascend.deploy.deployment import Features, Phase, Role, SharedExpert, Transport
from sglang_ascend.deploy.deployment_shape import ModelShape
from sglang_ascend.errors import ConfigError

#: Ranks that may share attention's heads. Decode keeps its cache in one place: wide splits only
#: help the latency of a few requests.
_SPLITS = {Phase.PREFILL: (1, 2, 4, 8, 16, 32), Phase.DECODE: (1, 4, 16)}


def topologies(hardware: Hardware, cards: int) -> list[Topology]:
    """Instances of up to ``cards`` cards: parts of a node, then 1, 2, 3, 4, 6, 8, 12 ... nodes."""
    dies, per_node = (int(hardware.si(k)) for k in ("node.dies_per_card", "node.cards"))
    found = []
    size = 1
    while size < min(per_node, cards + 1):
        found.append(Topology(1, size, dies))
        size *= 2
    nodes, step = cards // per_node, 1
    counts = set()
    while step <= nodes:
        counts |= {step, 3 * step // 2 if step > 1 else 1}
        step *= 2
    counts |= {n for n in (18, 20, nodes) if n}
    found += [Topology(n, per_node, dies) for n in sorted(counts) if n <= nodes]
    return found


def roles(shape: ModelShape, phase: Phase, place: Topology) -> Iterator[Role]:
    """Roles of one instance on ``place`` that the model's shape allows."""
    world = place.world_size
    splits = [tp for tp in _SPLITS[phase] if tp <= world]
    if not shape.experts:
        splits = [world]
    for tp in splits:
        for role in _variants(shape, phase, place, tp):
            try:
                deployment_check.check_role(role, shape)
            except ConfigError:
                continue
            yield role


def _variants(shape: ModelShape, phase: Phase, place: Topology, tp: int) -> Iterator[Role]:
    prefill = phase is Phase.PREFILL
    batches = (1,) if not shape.experts or place.world_size == 1 else (1, 2)
    transports = (
        tuple(Transport) if shape.experts and place.world_size > 1 else (Transport.DISPATCH,)
    )
    for transport in transports:
        for micro_batches in batches:
            features = Features(
                multi_stream=not prefill and micro_batches == 1,
                prefetch=not prefill and micro_batches == 1,
                micro_batches=micro_batches,
                tp_dp_conversion=prefill and tp > 1,
                node_dedup=prefill and transport is Transport.DISPATCH and place.nodes > 1,
                dense_tensor_parallel=not (shape.experts and tp > 1),
            )
            for copies, shared, shared_ranks in _experts(shape, place.world_size):
                yield Role(
                    phase,
                    place,
                    attention_tp=tp,
                    redundant_experts=copies,
                    shared_expert=shared,
                    shared_ranks=shared_ranks,
                    transport=transport,
                    features=features,
                )


def _experts(shape: ModelShape, world: int) -> Iterator[tuple[int, SharedExpert, int]]:
    """Copies of experts: as few as fill the ranks evenly, and one more slot a rank.

    On many ranks the shared expert may have ranks of its own, one for every eight.
    """
    if not shape.experts:
        yield 0, SharedExpert.REPLICATED, 0
        return
    own = [(SharedExpert.REPLICATED, 0)]
    if shape.shared_experts and world >= 128 and world % 10 == 0:
        own.append((SharedExpert.DEDICATED, world // 10))
    for shared, ranks in own:
        holders = world - ranks
        fewest = -(-shape.experts // holders) * holders - shape.experts
        for extra in (0, holders):
            if fewest + extra <= shape.experts:
                yield fewest + extra, shared, ranks
