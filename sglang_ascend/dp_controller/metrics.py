"""The policy's numbers on SGLang's ``/metrics`` endpoint (``--enable-metrics``)."""

from __future__ import annotations

from collections.abc import Mapping

from sglang_ascend.dp_controller.policy import Choice, RankLoad


class Metrics:
    """Prometheus metrics of the DP controller's process, which SGLang collects over files.

    Create it only where SGLang has set up ``PROMETHEUS_MULTIPROC_DIR``.
    """

    def __init__(self) -> None:
        from prometheus_client import Counter, Gauge

        self._choices = Counter(
            "sglang_ascend:dp_choices",
            "Requests by the rank that got them and the reason why",
            ["dp_rank", "reason"],
        )
        self._prompt = Counter("sglang_ascend:dp_prompt_tokens", "Prompt tokens that were routed")
        self._matched = Counter(
            "sglang_ascend:dp_affinity_tokens",
            "Prompt tokens that the chosen rank was expected to hold in its prefix cache",
        )
        self._kv = Gauge(
            "sglang_ascend:dp_predicted_kv_tokens",
            "KV tokens of a rank's requests, with what they are expected to generate",
            ["dp_rank"],
            multiprocess_mode="mostrecent",
        )
        self._prefill = Gauge(
            "sglang_ascend:dp_waiting_prefill_tokens",
            "Uncached prompt tokens that wait on a rank",
            ["dp_rank"],
            multiprocess_mode="mostrecent",
        )

    def record(self, choice: Choice, prompt_tokens: int, loads: Mapping[int, RankLoad]) -> None:
        """Note one choice and the loads after it."""
        self._choices.labels(choice.rank, choice.reason).inc()
        self._prompt.inc(prompt_tokens)
        self._matched.inc(choice.matched_tokens)
        for rank, load in loads.items():
            self._kv.labels(rank).set(load.kv)
            self._prefill.labels(rank).set(load.prefill)
