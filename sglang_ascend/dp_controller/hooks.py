"""Our side of the seams on SGLang's ``managers/data_parallel_controller.py``.

=========================================  ====================================================
SGLang                                     ours
=========================================  ====================================================
``init_dispatcher(self)``                  ``attach(result, controller)``: after it
``round_robin_scheduler(self, req)``       ``dispatch(original, controller, req)``: around it
``send_control_message(self, obj)``        ``note_control(controller, message)``: before it
``event_loop(self)``                       ``event_loop(controller)``: in its place
``load_snapshot.zmq_reader_owner(caller)`` ``reader_owner(original, caller)``: around it
=========================================  ====================================================

A control message is looked at and passes on at once, to the same ranks in the same order: ranks
that step together must see the same messages before the same step.
"""

from __future__ import annotations

import logging

from sglang_ascend.dp_controller import flag
from sglang_ascend.dp_controller.controller_state import ControllerState

logger = logging.getLogger(__name__)

#: Longest sleep without a message: the watchdog wants to be fed.
_POLL_MS = 100
#: Attribute of the controller that holds our state; absent where SGLang's own method applies.
STATE = "_sglang_ascend_state"


def applies(server_args) -> bool:
    """Whether our policy stands in for round robin on this server.

    Not where the user asked for a method of SGLang's, where SGLang follows bootstrap rooms (PD
    prefill), or under elastic EP, whose new ranks publish no load.
    """
    from sglang.srt.arg_groups.model_override_base import resolved_view

    return (
        flag.current() == flag.ASCEND
        and server_args.load_balance_method == "auto"
        and resolved_view(server_args).load_balance_method == "round_robin"
        and server_args.elastic_ep_backend is None
    )


def attach(result, controller) -> None:
    """Give a controller that is ready to dispatch its router."""
    from sglang.srt.arg_groups.model_override_base import resolved_view
    from sglang.srt.runtime_context import get_observability

    from sglang_ascend.dp_controller.metrics import Metrics

    if not applies(controller.server_args):
        logger.info("DP policy: SGLang's %s", controller.load_balance_method.name.lower())
        return
    args = resolved_view(controller.server_args)
    state = ControllerState(
        ranks=len(controller.workers),
        page_size=args.page_size or 1,
        reuses_prefixes=not args.disable_radix_cache,
        read_snapshots=controller.load_snapshot_reader.read_all,
        metrics=Metrics() if get_observability().enable_metrics else None,
    )
    setattr(controller, STATE, state)
    logger.info(
        "DP policy: %s over %d ranks, prefix blocks of %d tokens",
        flag.ASCEND,
        len(controller.workers),
        state.block_tokens,
    )


def dispatch(original, controller, req) -> None:
    """Send a request to the rank of our choice."""
    from sglang.srt.managers.io_struct import sock_send

    state: ControllerState | None = getattr(controller, STATE, None)
    live = live_ranks(controller)
    if state is None or not live or req.routed_dp_rank not in (None, *live):
        # SGLang's method, which also refuses what cannot be sent anywhere.
        original(controller, req)
        return
    choice = state.choose(req, live)
    logger.debug("DP rank %d for %s: %s", choice.rank, req.rid, choice.reason)
    sock_send(controller.workers[choice.rank], req)


def live_ranks(controller) -> list[int]:
    """Ranks that SGLang would send a request to."""
    return [
        rank
        for rank in controller._active_workers
        if controller.status[rank] and controller.workers[rank] is not None
    ]


def note_control(controller, message) -> None:
    """Take notice of messages that empty caches or end requests and sessions."""
    from sglang.srt.managers.io_struct import AbortReq, CloseSessionReqInput, FlushCacheReqInput

    state: ControllerState | None = getattr(controller, STATE, None)
    if state is None:
        return
    if isinstance(message, AbortReq):
        # "Abort all" shows in the next reports.
        if not message.abort_all:
            state.router.cancel(message.rid)
    elif isinstance(message, CloseSessionReqInput):
        state.router.close_session(message.session_id)
    elif isinstance(message, FlushCacheReqInput) or getattr(message, "flush_cache", False):
        state.router.flush()


def event_loop(controller) -> None:
    """Dispatch messages in the order of their arrival; sleep, instead of spinning, in between."""
    from sglang.srt.managers.io_struct import sock_recv

    socket = controller.recv_from_tokenizer
    while True:
        controller.soft_watchdog.feed()
        if socket.poll(_POLL_MS):
            controller._request_dispatcher(sock_recv(socket))


def reader_owner(original, caller: str) -> bool:
    """Let the controller receive load reports that come over the network, since it needs them.

    SGLang gives them to the tokenizer process under round robin, which reads them on demand only.
    """
    from sglang.srt.managers.load_snapshot import should_use_zmq
    from sglang.srt.runtime_context import get_parallel, get_server_args

    parallel = get_parallel()
    if (
        not should_use_zmq()
        or parallel.node_rank != 0
        or parallel.num_dp_ranks == 1
        or not applies(get_server_args())
    ):
        return original(caller)
    return caller == "DataParallelController"
