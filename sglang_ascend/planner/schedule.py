"""When each node of a layer graph runs: list scheduling, one node at a time on an engine."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sglang_ascend.comm.layer_graph import Engine, Node, stacked

_ENGINES = tuple(Engine)
#: Layers of the stack in which two micro-batches settle into a rhythm, and those it is taken over.
_SETTLED, _STACK = 2, 4


@dataclass(frozen=True)
class Placed:
    """A node with its start and end, in seconds from the start of the graph."""

    node: Node
    start_s: float
    end_s: float


@dataclass(frozen=True)
class _Compiled:
    """A stack as indices: what each node runs on, how many it waits for, and who waits for it."""

    nodes: tuple[Node, ...]
    base_names: tuple[str, ...]
    engines: tuple[int, ...]
    waiting: tuple[int, ...]
    followers: tuple[tuple[int, ...], ...]


@functools.lru_cache(maxsize=1024)
def _compiled(nodes: tuple[Node, ...], layers: int, micro_batches: int) -> _Compiled:
    stack = [node for chain in stacked(nodes, layers, micro_batches) for node in chain]
    position = {node.name: i for i, node in enumerate(stack)}
    followers: list[list[int]] = [[] for _ in stack]
    for i, node in enumerate(stack):
        for name in node.after:
            followers[position[name]].append(i)
    return _Compiled(
        tuple(stack),
        tuple(node.name.split("/")[0] for node in stack),
        tuple(_ENGINES.index(node.engine) for node in stack),
        tuple(len(node.after) for node in stack),
        tuple(map(tuple, followers)),
    )


def _run(
    graph: _Compiled, seconds: Sequence[float], older_first: bool
) -> tuple[list[float], list[float]]:
    """Start and end of each node; a node that has started is not interrupted.

    Args:
        older_first: of the nodes that an engine could start at once, take the first of the graph;
            else the one that has waited longest.
    """
    count = len(seconds)
    waiting, ready_s = list(graph.waiting), [0.0] * count
    queues: list[list[int]] = [[] for _ in _ENGINES]
    free = [0.0] * len(_ENGINES)
    start, end = [0.0] * count, [0.0] * count
    for i in range(count):
        if not waiting[i]:
            queues[graph.engines[i]].append(i)
    for _ in range(count):
        best = None
        for engine, queue in enumerate(queues):
            for i in queue:
                ready = ready_s[i]
                at = free[engine] if free[engine] > ready else ready
                key = (at, 0.0 if older_first else ready, i)
                if best is None or key < best:
                    best = key
        begin, _, i = best
        engine = graph.engines[i]
        queues[engine].remove(i)
        start[i] = begin
        end[i] = free[engine] = done = begin + seconds[i]
        for j in graph.followers[i]:
            if done > ready_s[j]:
                ready_s[j] = done
            waiting[j] -= 1
            if not waiting[j]:
                queues[graph.engines[j]].append(j)
    return start, end


def placed_stack(
    nodes: tuple[Node, ...], seconds: Mapping[str, float], layers: int, micro_batches: int
) -> tuple[Placed, ...]:
    """The schedule of a stack of equal layers.

    Args:
        nodes: graph of one layer and micro-batch, each node after those that it waits for.
        seconds: duration by node name, of one micro-batch.
    """
    graph = _compiled(nodes, layers, micro_batches)
    durations = [seconds[name] for name in graph.base_names]
    runs = (_run(graph, durations, older_first) for older_first in (False, True))
    start, end = min(runs, key=lambda run: max(run[1]))
    return tuple(map(Placed, graph.nodes, start, end))


def layer_seconds(
    nodes: tuple[Node, ...], seconds: Mapping[str, float], micro_batches: int = 1
) -> float:
    """Time that one more layer adds to a long stack of equal layers.

    A single micro-batch does one layer after the other; two of them overlap across layers, in
    whichever of the two orders is faster: a runtime would launch that one.
    """
    layers = 1 if micro_batches == 1 else _STACK
    graph = _compiled(nodes, layers, micro_batches)
    durations = [seconds[name] for name in graph.base_names]
    if micro_batches == 1:
        return max(_run(graph, durations, False)[1])
    part = _SETTLED * micro_batches * len(nodes)
    best = float("inf")
    for older_first in (False, True):
        end = _run(graph, durations, older_first)[1]
        best = min(best, (max(end) - max(end[:part])) / (_STACK - _SETTLED))
    return best
