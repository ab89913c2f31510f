"""How many tokens a request will generate, learnt from what the ranks report."""

from __future__ import annotations

import math

#: Before anything was reported: the mean output of the Azure and Mooncake conversation traces is
#: 211 and 343 tokens.
PRIOR_TOKENS = 256.0
#: Requests for which the prior counts, and over which older observations fade.
PRIOR_REQUESTS = 16.0
WINDOW_REQUESTS = 2048.0


class OutputLength:
    """Running mean of real output lengths.

    Outputs go from the ranks straight to the detokenizer and never pass the controller. What it can
    see are totals: tokens that a rank has generated and requests that have left it. Their quotient
    is the mean, without a length of any single request. SGLang leaves decode steps next to a
    prefill out of its total, so the mean is low where prefill interrupts often.
    """

    def __init__(self) -> None:
        self._tokens = PRIOR_TOKENS * PRIOR_REQUESTS
        self._requests = PRIOR_REQUESTS

    @property
    def mean(self) -> float:
        """Tokens a request."""
        return self._tokens / self._requests

    def learn(self, finished: int, generated: float) -> None:
        """Add requests that ended and tokens that were generated since the last call.

        ``finished`` may be negative: a count that was too high before is put right.
        """
        fade = math.exp(-max(finished, 0) / WINDOW_REQUESTS)
        # Never below one request of one token, whatever order the two totals arrive in.
        self._requests = max(1.0, self._requests * fade + finished)
        self._tokens = max(self._requests, self._tokens * fade + generated)

    def expected(self, max_new_tokens: int | None, ignore_eos: bool) -> float:
        """Mean output under a limit, as for exponentially distributed lengths.

        An exponential rest has the same mean however much was generated already, so this is also
        what a running request is still expected to add.
        """
        if max_new_tokens is None:
            return self.mean
        if ignore_eos:
            return float(max_new_tokens)
        return self.mean * -math.expm1(-max_new_tokens / self.mean)
