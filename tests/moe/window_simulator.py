"""Every order in which ranks and links can act on receive windows, without processes.

A rank runs operator 0, 1, 2, ... Each one: write a message into the window of every rank (a message
stays on its link for any time; a link keeps the order), wait until the flags of all messages of
this operator are in the own window, read the messages one after the other, leave. Operator n uses
window n mod `windows`; a later message in a window overwrites an earlier one, flag included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class State(NamedTuple):
    """operator, to_read: per rank, the operator it is in, and the messages that it has still to
    read there: None before it has sent, `ranks` while it waits. window[rank][window][source]: the
    operator whose message lies there. link[source][target]: operators of messages on their way.
    """

    operator: tuple[int, ...]
    to_read: tuple[int | None, ...]
    window: tuple[tuple[tuple[int, ...], ...], ...]
    link: tuple[tuple[tuple[int, ...], ...], ...]


class Corruption(Exception):
    """A rank read a message of another operator than its own."""


def start(ranks: int, windows: int) -> State:
    empty = ((-1,) * ranks,) * windows
    return State((0,) * ranks, (None,) * ranks, (empty,) * ranks, (((),) * ranks,) * ranks)


def actions(state: State, operators: int, windows: int) -> list[Callable[[], State]]:
    """What can happen next."""
    ranks = len(state.operator)
    found: list[Callable[[], State]] = []
    for rank, operator in enumerate(state.operator):
        if operator == operators:
            continue
        if state.to_read[rank] is None:
            found.append(lambda rank=rank: _send(state, rank))
        elif state.to_read[rank] < ranks or _arrived(state, rank, windows):
            found.append(lambda rank=rank: _read(state, rank, windows))
    for source in range(ranks):
        for target in range(ranks):
            if state.link[source][target]:
                found.append(
                    lambda source=source, target=target: _deliver(state, source, target, windows)
                )
    return found


def _set(values: tuple, index: int, value) -> tuple:
    return (*values[:index], value, *values[index + 1 :])


def _arrived(state, rank, windows) -> bool:
    operator = state.operator[rank]
    return all(flag == operator for flag in state.window[rank][operator % windows])


def _send(state, rank) -> State:
    links = tuple((*link, state.operator[rank]) for link in state.link[rank])
    return state._replace(
        to_read=_set(state.to_read, rank, len(state.operator)),
        link=_set(state.link, rank, links),
    )


def _deliver(state, source, target, windows) -> State:
    operator, *rest = state.link[source][target]
    into = operator % windows
    window = _set(state.window[target][into], source, operator)
    return state._replace(
        window=_set(state.window, target, _set(state.window[target], into, window)),
        link=_set(state.link, source, _set(state.link[source], target, tuple(rest))),
    )


def _read(state, rank, windows) -> State:
    operator, left = state.operator[rank], state.to_read[rank] - 1
    found = state.window[rank][operator % windows][left]
    if found != operator:
        raise Corruption(f"rank {rank} reads operator {found} in its operator {operator}")
    if left:
        return state._replace(to_read=_set(state.to_read, rank, left))
    return state._replace(
        operator=_set(state.operator, rank, operator + 1),
        to_read=_set(state.to_read, rank, None),
    )


def is_done(state: State, operators: int) -> bool:
    return all(operator == operators for operator in state.operator)


def spread(state: State) -> int:
    """How many operators the first rank is ahead of the last: 2 would break the protocol."""
    started = max(
        operator - (to_read is None) for operator, to_read in zip(state.operator, state.to_read)
    )
    return started - min(state.operator)
