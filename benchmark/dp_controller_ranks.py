"""Simulated ranks: a paged KV pool with a radix cache, chunked prefill first, then decode.

One ``RankGroup`` steps together: all ranks under DP attention, a single one under plain DP. What a
rank publishes, and when, follows SGLang's scheduler: requests that arrived during a step are not in
its report, a batch that was just prefilled is in neither count, a request that ends is still
counted in the report of its last step, and of decode steps every 15th is reported.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field

from sglang.srt.managers.load_snapshot import LoadSnapshot

from benchmark.dp_controller_costs import Costs
from benchmark.dp_controller_traces import BLOCK_TOKENS, TraceRequest

#: Decode steps that are simulated at once.
_MAX_STEPS = 64
#: SGLang's default of ``--load-snapshot-publish-interval``, in decode steps.
_PUBLISH_STEPS = 15


@dataclass(slots=True)
class Job:
    """A request on a rank."""

    request: TraceRequest
    first_token_s: float = -1.0
    hit_blocks: int = 0
    left: int = 0
    reserved: int = 0
    private: int = 0


@dataclass
class SimRank:
    """State of one rank; ``plan`` and ``finish_step`` are called by its group."""

    rank: int
    costs: Costs
    inbox: deque[Job] = field(default_factory=deque)
    waiting: deque[Job] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._pins: Counter[int] = Counter()
        self._unused: OrderedDict[int, None] = OrderedDict()
        self._reserved = 0
        self._prefilling: list[Job] = []
        self._batch: list[Job] = []
        self._running: list[tuple[int, int, Job]] = []
        self._steps = self._serial = 0
        self._private = self.context = 0
        self._moments = [0.0] * 6
        self._after_prefill = True
        self._unpublished = 0
        self.prompt_tokens = self.hit_tokens = 0
        self._published = LoadSnapshot(dp_rank=self.rank)

    @property
    def kv_tokens(self) -> int:
        """KV slots that running requests hold, shared ones once."""
        return len(self._pins) * BLOCK_TOKENS + self._private

    def plan(self) -> tuple[float, int]:
        """Duration of the next step and how many such steps may follow each other (0: idle)."""
        self.waiting.extend(self.inbox)
        self.inbox.clear()
        self._admit()
        if self._prefilling:
            budget = self.costs.prefill_chunk
            self._batch = []
            for job in self._prefilling:
                if budget <= 0:
                    break
                budget -= min(job.left, budget)
                self._batch.append(job)
            return self.costs.prefill_s(self.costs.prefill_chunk - budget), 1
        if self._running:
            steps = self._running[0][0] - self._steps
            return self.costs.decode_s(len(self._running), self.context), min(steps, _MAX_STEPS)
        return 0.0, 0

    def finish_step(self, start_s: float, step_s: float, steps: int) -> list[Job]:
        """Apply what ``plan`` announced; the requests that have got their first token."""
        if self._prefilling:
            return self._finish_prefill(start_s + step_s)
        if self._running:
            self._finish_decode(start_s, step_s, steps)
        return []

    def snapshot(self, now_s: float, start_s: float, step_s: float) -> LoadSnapshot:
        """The last report, which may come from within a run of decode steps."""
        if step_s and self._running and not self._prefilling:
            self._publish_decode(start_s, step_s, int((now_s - start_s) / step_s))
        return self._published

    def publish_idle(self, now_s: float) -> None:
        """What a rank without work publishes at once."""
        self._unpublished = 0
        self._published = self._report(now_s, 0)

    def _publish_decode(self, start_s: float, step_s: float, steps: int) -> None:
        last = steps - (self._unpublished + steps) % _PUBLISH_STEPS
        time_s = start_s + last * step_s
        if last > 0 and time_s > self._published.timestamp:
            self._published = self._report(time_s, last)

    def _admit(self) -> None:
        while self.waiting and sum(job.left for job in self._prefilling) < self.costs.prefill_chunk:
            job = self.waiting[0]
            request = job.request
            hit = 0
            for block in request.blocks:
                if block not in self._pins and block not in self._unused:
                    break
                hit += 1
            revived = sum(block in self._unused for block in request.blocks[:hit])
            # SGLang computes at least the last token of a prompt.
            hit_tokens = min(hit * BLOCK_TOKENS, request.prompt_tokens - 1)
            need = request.prompt_tokens - hit * BLOCK_TOKENS + request.output_tokens
            held = len(self._pins) * BLOCK_TOKENS + self._reserved
            if held + revived * BLOCK_TOKENS + need > self.costs.pool_tokens and (
                self._running or self._prefilling
            ):
                return
            self.waiting.popleft()
            for block in request.blocks[:hit]:
                self._unused.pop(block, None)
                self._pins[block] += 1
            self._reserved += need
            self._evict()
            job.reserved, job.hit_blocks = need, hit
            job.left = request.prompt_tokens - hit_tokens
            self.prompt_tokens += request.prompt_tokens
            self.hit_tokens += hit_tokens
            self._prefilling.append(job)

    def _evict(self) -> None:
        room = self.costs.pool_tokens - self._reserved - len(self._pins) * BLOCK_TOKENS
        while self._unused and len(self._unused) * BLOCK_TOKENS > room:
            self._unused.popitem(last=False)

    def _finish_prefill(self, now_s: float) -> list[Job]:
        budget, done = self.costs.prefill_chunk, []
        for job in self._batch:
            taken = min(job.left, budget)
            budget -= taken
            job.left -= taken
            job.private += taken
            self._private += taken
            if not job.left:
                done.append(job)
        self._prefilling = [job for job in self._prefilling if job.left]
        self._after_prefill = True
        self._unpublished = 0
        self._published = self._report(now_s, 0)
        for job in done:
            self._start_decoding(job)
            job.first_token_s = now_s
        return done

    def _start_decoding(self, job: Job) -> None:
        request = job.request
        for block in request.blocks[job.hit_blocks :]:
            self._unused.pop(block, None)
            self._pins[block] += 1
        fresh = (len(request.blocks) - job.hit_blocks) * BLOCK_TOKENS
        self._reserved -= fresh
        job.reserved -= fresh
        self._private += request.prompt_tokens - len(request.blocks) * BLOCK_TOKENS - job.private
        self.context += request.prompt_tokens
        self._serial += 1
        end = self._steps + max(1, request.output_tokens - 1)
        heapq.heappush(self._running, (end, self._serial, job))

    def _finish_decode(self, start_s: float, step_s: float, steps: int) -> None:
        self._publish_decode(start_s, step_s, steps)
        self._unpublished = (self._unpublished + steps) % _PUBLISH_STEPS
        counted = steps - 1 if self._after_prefill else steps
        self._after_prefill = False
        for place, amount in ((0, 1), (1, len(self._running)), (2, step_s * 1e6)):
            self._moments[place] += counted * amount
        self._moments[5] += counted * len(self._running)
        self._steps += steps
        self._private += steps * len(self._running)
        self.context += steps * len(self._running)
        while self._running and self._running[0][0] <= self._steps:
            self._release(heapq.heappop(self._running)[2])

    def _release(self, job: Job) -> None:
        request = job.request
        generated = max(1, request.output_tokens - 1)
        for block in reversed(request.blocks):
            self._pins[block] -= 1
            if not self._pins[block]:
                del self._pins[block]
                self._unused[block] = None
        self._reserved -= job.reserved
        tail = request.prompt_tokens - len(request.blocks) * BLOCK_TOKENS
        self._private -= tail + generated
        self.context -= request.prompt_tokens + generated
        for _ in range((tail + generated) // BLOCK_TOKENS):
            # Generated blocks stay in the cache, where nothing in these traces asks for them.
            self._serial += 1
            self._unused[-self._serial] = None
        self._evict()

    def _report(self, now_s: float, steps: int) -> LoadSnapshot:
        running = len(self._running)
        waiting_tokens = sum(job.request.prompt_tokens for job in self.waiting)
        hit_rate = self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0
        used = self.kv_tokens + steps * running
        moments = list(self._moments)
        moments[5] += steps * running
        return LoadSnapshot(
            timestamp=now_s,
            dp_rank=self.rank,
            num_running_reqs=running,
            num_waiting_reqs=len(self.waiting) + len(self._prefilling),
            num_waiting_uncached_tokens=int(waiting_tokens * (1 - hit_rate))
            + sum(job.left for job in self._prefilling),
            num_used_tokens=used,
            num_total_tokens=used + waiting_tokens,
            max_total_num_tokens=self.costs.pool_tokens,
            decode_moments=moments if moments[0] else None,
        )


class RankGroup:
    """Ranks that step together."""

    def __init__(self, ranks: list[SimRank]) -> None:
        self.ranks = ranks
        self._start_s = self._step_s = self._end_s = 0.0
        self._steps = 0

    def advance(self, until_s: float) -> list[Job]:
        """Run every step that ends by ``until_s``; the requests that got their first token."""
        started: list[Job] = []
        while True:
            if not self._steps and not self._begin(self._end_s):
                return started
            if self._end_s > until_s:
                return started
            for rank in self.ranks:
                started += rank.finish_step(self._start_s, self._step_s, self._steps)
            self._steps = 0

    def submit(self, rank: SimRank, request: TraceRequest) -> Job:
        """Put a request into a rank's socket; a run of decode steps ends with the present one."""
        job = Job(request)
        rank.inbox.append(job)
        if not self._steps:
            self._begin(max(request.arrival_s, self._end_s))
        elif self._steps > 1:
            passed = int((request.arrival_s - self._start_s) / self._step_s) + 1
            self._steps = min(self._steps, passed)
            self._end_s = self._start_s + self._steps * self._step_s
        return job

    def snapshots(self, now_s: float) -> list[LoadSnapshot]:
        """What each rank has published by now."""
        step_s = self._step_s if self._steps else 0.0
        return [rank.snapshot(now_s, self._start_s, step_s) for rank in self.ranks]

    def _begin(self, now_s: float) -> bool:
        plans = [rank.plan() for rank in self.ranks]
        busy = [steps for _, steps in plans if steps]
        for rank, (_, steps) in zip(self.ranks, plans):
            if not steps:
                rank.publish_idle(now_s)
        if not busy:
            return False
        self._start_s, self._steps = now_s, min(busy)
        self._step_s = max(duration for duration, _ in plans)
        self._end_s = now_s + self._steps * self._step_s
        return True
