"""The policy with its memory: prefixes, sessions and loads of all ranks."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sglang_ascend.dp_controller import policy
from sglang_ascend.dp_controller.output_length import OutputLength
from sglang_ascend.dp_controller.outstanding import RankLedger, Report
from sglang_ascend.dp_controller.policy import Choice, RankLoad
from sglang_ascend.dp_controller.prefix_index import PrefixIndex
from sglang_ascend.dp_controller.settings import PolicySettings

#: Size of a rank's KV pool until it reports its own.
DEFAULT_POOL_TOKENS = 65_536
_NO_REPORT = Report()


@dataclass(frozen=True)
class Request:
    """What the policy looks at in a request.

    Attributes:
        rid: SGLang's name of the request.
        prompt_tokens: length of the prompt.
        chain: prefix hashes (``block_hashes.chain``); empty where nothing can be reused.
        max_new_tokens, ignore_eos: the client's sampling parameters.
        session: name of the session, or None.
        session_is_state: the session's earlier turns exist on its rank only, so that it must stay
            there whatever the balance.
        rank: the rank that the client named, or None.
    """

    rid: str
    prompt_tokens: int
    chain: Sequence[int] = ()
    max_new_tokens: int | None = None
    ignore_eos: bool = False
    session: str | None = None
    session_is_state: bool = False
    rank: int | None = None


class Router:
    """Chooses ranks and remembers what it chose. One a controller; not safe for threads.

    A choice takes O(ranks * log(blocks) + blocks) time for a prompt of that many blocks.
    """

    def __init__(self, ranks: int, block_tokens: int, settings: PolicySettings) -> None:
        self.settings = settings
        self.choices: Counter[policy.Reason] = Counter()
        self.output_length = OutputLength()
        self._block = block_tokens
        self._indexes = [PrefixIndex(DEFAULT_POOL_TOKENS // block_tokens) for _ in range(ranks)]
        self._ledgers = [RankLedger(DEFAULT_POOL_TOKENS) for _ in range(ranks)]
        self._live: tuple[int, ...] = tuple(range(ranks))
        self._sessions: OrderedDict[str, int] = OrderedDict()
        self._totals = (0, 0.0)

    def observe(self, reports: Mapping[int, Report], now_s: float) -> None:
        """Take in what the ranks report; a report that is not new, or missing, changes no load."""
        for rank, ledger in enumerate(self._ledgers):
            before = ledger.pool_tokens
            ledger.observe(reports.get(rank, _NO_REPORT), now_s)
            if ledger.pool_tokens != before:
                self._indexes[rank].resize(ledger.pool_tokens // self._block)
        self._learn()

    def route(self, request: Request, live: Sequence[int], now_s: float) -> Choice:
        """Choose among the live ranks (at least one) and note the request as sent."""
        self._forget_dead(tuple(live))
        matched = {
            rank: blocks * self._block
            for rank in live
            if (blocks := self._indexes[rank].match(request.chain))
        }
        choice = self._choose(request, matched)
        self._note(request, choice, now_s)
        return choice

    def loads(self) -> dict[int, RankLoad]:
        """Load of every live rank."""
        mean = self.output_length.mean
        return {rank: self._ledgers[rank].load(mean) for rank in self._live}

    def cancel(self, rid: str) -> None:
        """A request was aborted by its client."""
        any(ledger.cancel(rid) for ledger in self._ledgers)

    def flush(self) -> None:
        """Every rank was told to empty its cache."""
        for index in self._indexes:
            index.clear()

    def close_session(self, session: str) -> None:
        """A session was closed by its client."""
        self._sessions.pop(session, None)

    def _choose(self, request: Request, matched: Mapping[int, int]) -> Choice:
        if request.rank is not None:
            return Choice(request.rank, "explicit", matched.get(request.rank, 0))
        home = self._sessions.get(request.session) if request.session is not None else None
        if home not in self._live:
            home = None
        elif request.session_is_state:
            return Choice(home, "session", matched.get(home, 0))
        return policy.choose(request.prompt_tokens, matched, self.loads(), self.settings, home)

    def _note(self, request: Request, choice: Choice, now_s: float) -> None:
        self.choices[choice.reason] += 1
        output = self.output_length.expected(request.max_new_tokens, request.ignore_eos)
        uncached = request.prompt_tokens - choice.matched_tokens
        self._ledgers[choice.rank].sent(request.rid, request.prompt_tokens, uncached, output, now_s)
        self._indexes[choice.rank].insert(request.chain, round(output / self._block))
        if request.session is not None:
            self._sessions[request.session] = choice.rank
            self._sessions.move_to_end(request.session)
            if len(self._sessions) > self.settings.max_sessions:
                self._sessions.popitem(last=False)

    def _forget_dead(self, live: tuple[int, ...]) -> None:
        if live == self._live:
            return
        for rank in set(self._live) - set(live):
            self._indexes[rank].clear()
            self._ledgers[rank] = RankLedger(self._ledgers[rank].pool_tokens)
        self._live = live

    def _learn(self) -> None:
        finished = sum(ledger.finished for ledger in self._ledgers)
        generated = sum(ledger.generated for ledger in self._ledgers)
        if (finished, generated) != self._totals:
            before = self._totals
            self._totals = (finished, generated)
            # A rank that was forgotten takes its totals with it.
            if generated >= before[1]:
                new = finished - before[0]
                self.output_length.learn(new, generated - before[1] + new)
