"""The router of one DP controller, and how it reads SGLang's requests and load reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sglang_ascend.dp_controller import block_hashes
from sglang_ascend.dp_controller.metrics import Metrics
from sglang_ascend.dp_controller.outstanding import Report
from sglang_ascend.dp_controller.policy import Choice
from sglang_ascend.dp_controller.router import Request, Router
from sglang_ascend.dp_controller.settings import PolicySettings

#: Reports are read no more often than this, as SGLang's own load-aware methods read them.
READ_INTERVAL_S = 0.02

#: Fields beside the token ids that separate entries of SGLang's radix cache.
_NAMESPACE = ("lora_id", "extra_key", "cache_salt")
#: Fields whose content stands in the prompt as placeholders, equal for different content.
_PLACEHOLDERS = ("mm_inputs", "input_embeds", "positional_embed_overrides")


class ControllerState:
    """What the hooks keep for one ``DataParallelController``."""

    def __init__(
        self,
        ranks: int,
        page_size: int,
        reuses_prefixes: bool,
        read_snapshots: Callable[[], Sequence],
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            reuses_prefixes: whether the ranks keep a prefix cache.
            read_snapshots: SGLang's reader of ``LoadSnapshot``, one a rank that published.
            clock: seconds; the clock by which the ranks date their reports.
        """
        self.block_tokens = block_hashes.block_tokens(page_size)
        self.router = Router(ranks, self.block_tokens, PolicySettings())
        self._reuses_prefixes = reuses_prefixes
        self._read_snapshots = read_snapshots
        self._metrics = metrics
        self._clock = clock
        self._read_s = float("-inf")

    def choose(self, req, live: Sequence[int]) -> Choice:
        """Rank of one of SGLang's tokenized requests, among the live ranks (at least one)."""
        now_s = self._clock()
        if now_s - self._read_s >= READ_INTERVAL_S:
            self._read_s = now_s
            reports = {
                snapshot.dp_rank: to_report(snapshot, now_s) for snapshot in self._read_snapshots()
            }
            self.router.observe(reports, now_s)
        choice = self.router.route(self._request(req), live, now_s)
        if self._metrics is not None:
            self._metrics.record(choice, len_of_prompt(req), self.router.loads())
        return choice

    def _request(self, req) -> Request:
        from sglang.srt.managers.io_struct import TokenizedGenerateReqInput

        generates = isinstance(req, TokenizedGenerateReqInput)
        params = getattr(req, "session_params", None)
        state = params.id if params is not None else None
        named = getattr(req, "session_id", None) or getattr(req, "routing_key", None)
        return Request(
            rid=req.rid,
            prompt_tokens=len_of_prompt(req),
            chain=() if state is not None else self._chain(req),
            max_new_tokens=req.sampling_params.max_new_tokens if generates else 0,
            ignore_eos=bool(req.sampling_params.ignore_eos),
            session=state or named,
            session_is_state=state is not None,
            rank=req.routed_dp_rank,
        )

    def _chain(self, req) -> Sequence[int]:
        if not self._reuses_prefixes or not req.input_ids or _any_set(req, _PLACEHOLDERS):
            return ()
        namespace = tuple(getattr(req, name, None) for name in _NAMESPACE)
        return block_hashes.chain(req.input_ids, self.block_tokens, namespace)


def len_of_prompt(req) -> int:
    """Prompt length, whether it came as tokens or as embeddings."""
    return len(req.input_ids or getattr(req, "input_embeds", None) or ())


def _any_set(req, fields: Sequence[str]) -> bool:
    return any(getattr(req, field, None) is not None for field in fields)


def to_report(snapshot, now_s: float) -> Report:
    """SGLang's ``LoadSnapshot`` in our terms.

    A rank on another node dates its reports by its own clock. One that is ahead is held at the time
    of reading; clocks of a cluster should agree to within a decode step.
    """
    steps, _, step_us, _, _, generated = snapshot.decode_moments or (0.0,) * 6
    in_grammar_queue = snapshot.queues.grammar if snapshot.queues is not None else 0
    return Report(
        time_s=min(snapshot.timestamp, now_s),
        requests=snapshot.num_running_reqs + snapshot.num_waiting_reqs + in_grammar_queue,
        kv_tokens=snapshot.num_total_tokens,
        prefill_tokens=snapshot.num_waiting_uncached_tokens,
        pool_tokens=snapshot.max_total_num_tokens,
        decode_steps=steps,
        decode_s=step_us * 1e-6,
        generated_tokens=generated,
    )
