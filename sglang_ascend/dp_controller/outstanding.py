"""Requests that one rank has not finished, and its load, from what was sent and what it reports."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from sglang_ascend.dp_controller.policy import RankLoad

#: A report this much younger than a request counts it, whatever else is known: far longer than one
#: turn of a scheduler's loop, whose longest is a prefill chunk.
SURELY_SEEN_S = 2.0
#: Without any report: a request is given up after this and twice its expected decode time.
UNREPORTED_S = 60.0
#: Time of a decode step until the rank reports its own.
DEFAULT_STEP_S = 0.05


@dataclass(frozen=True)
class Report:
    """What a rank last published about itself (``sglang.srt.managers.load_snapshot``).

    Attributes:
        time_s: when it was published, on the clock of ``RankLedger.sent``.
        requests: running and waiting requests.
        kv_tokens: KV slots in use that no cache entry alone keeps, and prompts that wait.
        prefill_tokens: uncached tokens of prompts that wait.
        pool_tokens: size of the KV pool.
        decode_steps, decode_s, generated_tokens: totals since the start.
    """

    time_s: float = 0.0
    requests: int = 0
    kv_tokens: int = 0
    prefill_tokens: int = 0
    pool_tokens: int = 0
    decode_steps: float = 0.0
    decode_s: float = 0.0
    generated_tokens: float = 0.0


@dataclass(slots=True)
class _Request:
    prompt: int
    uncached: int
    output: float
    sent_s: float
    end_s: float
    report_s: float | None = None


class RankLedger:
    """Load of one rank: its last report, and whatever was sent too late to be in it.

    A scheduler reads its socket once a turn and publishes at the turn's end, so a report may be
    younger than a request and not contain it. A request counts as *unseen*, on top of the report,
    until a second younger report was read, or one younger by ``SURELY_SEEN_S``. Counting one twice
    for a moment is harmless; missing one sends a whole burst to one rank.

    Nothing tells the controller that a certain request ended. Reports say how many requests there
    are; where that is less than what was seen, those expected to end first are taken off.
    """

    def __init__(self, pool_tokens: int) -> None:
        self.finished = 0
        self.generated = 0.0
        self._report = Report(pool_tokens=pool_tokens)
        self._requests_before = 0
        self._unseen: dict[str, _Request] = {}
        self._seen: dict[str, _Request] = {}
        self._seen_total = self._sent = 0
        self._unseen_tokens = self._unseen_prefill = self._expected = 0.0

    @property
    def pool_tokens(self) -> int:
        """Size of the rank's KV pool."""
        return self._report.pool_tokens

    def sent(self, rid: str, prompt: int, uncached: int, output: float, now_s: float) -> None:
        """Note a request.

        Args:
            prompt, uncached: prompt tokens, and those of them that its cache is not expected to
                hold.
            output: tokens that it is expected to generate.
        """
        self.cancel(rid)
        report = self._report
        step_s = report.decode_s / report.decode_steps if report.decode_steps else DEFAULT_STEP_S
        request = _Request(prompt, uncached, output, now_s, now_s + output * step_s)
        self._unseen[rid] = request
        self._sent += 1
        self._unseen_tokens += prompt
        self._unseen_prefill += uncached
        self._expected += output

    def cancel(self, rid: str) -> bool:
        """Take off a request that was aborted; whether it was here."""
        if (request := self._unseen.pop(rid, None)) is not None:
            self._unseen_tokens -= request.prompt
            self._unseen_prefill -= request.uncached
            self._seen_total += 1
        elif (request := self._seen.pop(rid, None)) is None:
            return False
        self._expected -= request.output
        return True

    def observe(self, report: Report, now_s: float) -> None:
        """Take in a report, if it is new; without new ones, give up what should have ended."""
        if report.time_s <= self._report.time_s:
            self._give_up(now_s)
            return
        self._see(report.time_s)
        self.generated = report.generated_tokens
        self._requests_before, before = report.requests, self._requests_before
        self._report = report
        # A batch that was just prefilled is in neither of SGLang's two counts until the next turn.
        surplus = len(self._seen) - max(report.requests, before)
        if surplus > 0:
            ending = heapq.nsmallest(surplus, self._seen, key=lambda rid: self._seen[rid].end_s)
            for rid in ending:
                self._expected -= self._seen.pop(rid).output
        self.finished = self._seen_total - max(report.requests, before)

    def load(self, mean_output: float) -> RankLoad:
        """Load of this moment; ``mean_output`` stands for requests that the ledger took off early.

        Every number is in tokens.
        """
        report = self._report
        unknown = max(0, report.requests - len(self._seen))
        return RankLoad(
            kv=report.kv_tokens + self._unseen_tokens + self._expected + unknown * mean_output,
            prefill=report.prefill_tokens + self._unseen_prefill,
            pool=report.pool_tokens,
            sent=self._sent,
        )

    def _see(self, time_s: float) -> None:
        seen = []
        for rid, request in self._unseen.items():
            if request.sent_s >= time_s:
                break
            first, request.report_s = request.report_s, time_s
            if first is not None or time_s - request.sent_s > SURELY_SEEN_S:
                seen.append(rid)
        for rid in seen:
            self._move_to_seen(rid)

    def _move_to_seen(self, rid: str) -> None:
        request = self._seen[rid] = self._unseen.pop(rid)
        self._unseen_tokens -= request.prompt
        self._unseen_prefill -= request.uncached
        self._seen_total += 1

    def _give_up(self, now_s: float) -> None:
        late = [
            rid
            for rid, request in self._unseen.items()
            if request.report_s is None
            and now_s > 2 * request.end_s - request.sent_s + UNREPORTED_S
        ]
        for rid in late:
            self.cancel(rid)
