"""Prometheus metrics of expert parallelism, beside SGLang's own with ``--enable-metrics``."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_ascend.comm.ledger import ByteLedger
from sglang_ascend.moe.dispatch.chooser import Choice
from sglang_ascend.moe.dispatch.routing_statistics import RoutingStatistics
from sglang_ascend.moe.step import Step


class EpMetrics:
    """What one rank did; all counters carry its rank as a label."""

    def __init__(self, rank: int, layer_ids: Sequence[int], enabled: bool) -> None:
        self._rank = str(rank)
        self._layer_ids = layer_ids
        self._enabled = enabled
        self._sent: dict[tuple[str, str], int] = {}
        if enabled:
            self._create()

    def _create(self) -> None:
        # SGLang sets PROMETHEUS_MULTIPROC_DIR, which the library reads when it is imported.
        from prometheus_client import Counter, Gauge

        self._tokens = Counter("sglang_ascend:ep_tokens_total", "Tokens of this rank", ["ep_rank"])
        self._choices = Counter(
            "sglang_ascend:ep_choices_total", "Steps by transport", ["ep_rank", "transport"]
        )
        self._predicted = Counter(
            "sglang_ascend:ep_predicted_seconds_total",
            "Predicted exchange of all layers, by transport that was taken",
            ["ep_rank", "transport"],
        )
        self._measured = Counter(
            "sglang_ascend:ep_measured_seconds_total",
            "Measured exchange and experts of all layers, by transport that was taken",
            ["ep_rank", "transport"],
        )
        self._bytes = Counter(
            "sglang_ascend:ep_sent_bytes_total",
            "Bytes sent by operation and class of link",
            ["ep_rank", "operation", "link"],
        )
        labels = ["ep_rank", "layer"]
        self._peak = Gauge(
            "sglang_ascend:ep_expert_load_max_over_mean",
            "Rows of a layer's fullest expert slot over the mean, moving average",
            labels,
            multiprocess_mode="mostrecent",
        )
        self._skew = Gauge(
            "sglang_ascend:ep_rank_load_max_over_mean",
            "Rows of the fullest rank over the mean, moving average over the layers",
            ["ep_rank"],
            multiprocess_mode="mostrecent",
        )

    def step_began(self, step: Step, choice: Choice) -> None:
        """One forward pass takes the chosen transport."""
        if self._enabled:
            self._tokens.labels(self._rank).inc(step.token_counts[int(self._rank)])
            self._choices.labels(self._rank, choice.transport).inc()

    def layer_done(self, choice: Choice, seconds: float) -> None:
        """One layer took so long, its experts included."""
        if self._enabled:
            labels = (self._rank, choice.transport)
            self._predicted.labels(*labels).inc(choice.predicted_s[choice.transport])
            self._measured.labels(*labels).inc(seconds)

    def routing(self, statistics: RoutingStatistics, ledger: ByteLedger) -> None:
        """New routing statistics; also a good moment to bring the byte counts up to date."""
        if not self._enabled:
            return
        self._skew.labels(self._rank).set(statistics.skew)
        for layer_id, load in zip(self._layer_ids, statistics.load):
            self._peak.labels(self._rank, str(layer_id)).set(max(load) * len(load))
        for (operation, link), traffic in ledger.snapshot().items():
            new = traffic.nbytes - self._sent.get((operation, link), 0)
            self._sent[operation, link] = traffic.nbytes
            self._bytes.labels(self._rank, operation, str(link)).inc(new)
