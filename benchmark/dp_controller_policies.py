"""SGLang's policies and ours, each behind the controller's method that a server calls.

The controller is SGLang's class without its processes: an instance whose attributes are what its
constructor would set, with recorders in place of sockets and the simulation's clock.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from sglang.srt.managers.data_parallel_controller import (
    DataParallelController,
    DPBudget,
    LoadBalanceMethod,
)
from sglang.srt.managers.io_struct import TokenizedGenerateReqInput
from sglang.srt.sampling.sampling_params import SamplingParams

from benchmark.dp_controller_traces import BLOCK_TOKENS, TraceRequest
from sglang_ascend.dp_controller import hooks
from sglang_ascend.dp_controller.controller_state import READ_INTERVAL_S, ControllerState

OURS = "ascend"
#: SGLang's methods by the name of their flag value; the first is its default.
UPSTREAM = {
    "round_robin": DataParallelController.round_robin_scheduler,
    "total_requests": DataParallelController.total_requests_scheduler,
    "total_tokens": DataParallelController.total_tokens_scheduler,
    "follow_bootstrap_room": DataParallelController.follow_bootstrap_room_scheduler,
}
POLICIES = (*UPSTREAM, OURS)
#: Page size of a server on the NPU.
_PAGE_SIZE = 128


class _Recorder:
    """Stands for a rank's socket and notes that something was sent."""

    def __init__(self, rank: int, sent: list[int]) -> None:
        self._rank, self._sent = rank, sent

    def send_pyobj(self, obj, flags: int = 0, protocol: int = 0) -> None:
        self._sent.append(self._rank)


class _Reader:
    def __init__(self, read_all: Callable[[], list]) -> None:
        self.read_all = read_all


class Chooser:
    """One policy over simulated ranks."""

    def __init__(self, policy: str, ranks: int, snapshots: Callable[[float], list]) -> None:
        """
        Args:
            snapshots: what the ranks have published by a time, as SGLang's reader returns it.
        """
        self.now_s = 0.0
        self._sent: list[int] = []
        self._read_s = float("-inf")
        self._controller = controller = object.__new__(DataParallelController)
        controller.workers = [_Recorder(rank, self._sent) for rank in range(ranks)]
        controller.status = [True] * ranks
        controller._active_workers = list(range(ranks))
        controller.round_robin_counter = 0
        controller.dp_budget = DPBudget(ranks)
        controller.load_snapshot_reader = _Reader(lambda: snapshots(self.now_s))
        method = "round_robin" if policy == OURS else policy
        controller.load_balance_method = LoadBalanceMethod.from_str(method)
        self._reads_load = policy in ("total_requests", "total_tokens")
        self._dispatch = UPSTREAM[method]
        self.router = None
        if policy == OURS:
            state = ControllerState(
                ranks,
                _PAGE_SIZE,
                reuses_prefixes=True,
                read_snapshots=controller.load_snapshot_reader.read_all,
                clock=lambda: self.now_s,
            )
            setattr(controller, hooks.STATE, state)
            self._dispatch = lambda controller, req: hooks.dispatch(
                DataParallelController.round_robin_scheduler, controller, req
            )
            self.router = state.router

    def choose(self, req: TokenizedGenerateReqInput, now_s: float) -> int:
        """Rank of a request that arrives now."""
        self.now_s = now_s
        if self._reads_load:
            # SGLang throttles by the real clock, which stands still here.
            due = self.now_s - self._read_s >= READ_INTERVAL_S
            self._controller._last_refresh_time = float("-inf") if due else float("inf")
            if due:
                self._read_s = self.now_s
            self._controller.refresh_load_budget()
        self._dispatch(self._controller, req)
        return self._sent.pop()


def tokenized(number: int, request: TraceRequest) -> TokenizedGenerateReqInput:
    """The request as a tokenizer worker sends it; token ids repeat the names of their blocks."""
    tokens = array("q")
    for block in request.blocks:
        tokens.extend(array("q", [block]) * BLOCK_TOKENS)
    tokens.extend(array("q", [-1 - number]) * (request.prompt_tokens - len(tokens)))
    return TokenizedGenerateReqInput(
        rid=f"{number}",
        input_text=None,
        input_ids=tokens,
        input_embeds=None,
        mm_inputs=None,
        token_type_ids=None,
        sampling_params=SamplingParams(max_new_tokens=None),
        return_logprob=False,
        logprob_start_len=-1,
        top_logprobs_num=0,
        token_ids_logprob=None,
        stream=True,
        # A router in front of PD servers draws rooms at random.
        bootstrap_room=_room(number),
    )


def _room(number: int) -> int:
    """A random number that is the same in each run (splitmix64)."""
    value = (number + 1) * 0x9E3779B97F4A7C15 & (1 << 64) - 1
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
    return value >> 33
