"""Costs of the simulated ranks, with their sources. A prediction, not a measurement."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmark.dp_controller_traces import TraceRequest


@dataclass(frozen=True)
class Costs:
    """One DP rank that serves DeepSeek-V3 on one NPU of a CloudMatrix384.

    Attributes:
        prefill_tokens_per_s: arXiv 2506.12708: 5655 tokens/s an NPU, prompts of 4K. Longer prompts
            are taken at the same rate.
        prefill_chunk: tokens a prefill step, SGLang's default on large devices; SGLang divides it
            by the number of ranks under DP attention.
        step_s, step_per_request_s: a decode step without MTP is 61 layers of 0.874 ms and about
            7 ms around them (same source, 96 requests a rank), less the time to read their KV. The
            split between the fixed and the per-request part is assumed.
        step_per_kv_token_s: 70.3 KB a token (61 layers, 576 BF16 values) at 84.1 % of 3.2 TB/s.
        pool_tokens: 96 requests of 4096 tokens, the batch of that source.
    """

    prefill_tokens_per_s: float = 5655
    prefill_chunk: int = 8192
    step_s: float = 0.030
    step_per_request_s: float = 0.0002
    step_per_kv_token_s: float = 70.3e3 / (0.841 * 3.2e12)
    pool_tokens: int = 96 * 4096

    @classmethod
    def for_ranks(cls, ranks: int, lockstep: bool) -> Costs:
        """Costs under plain DP or, in lockstep, under DP attention."""
        costs = cls()
        if not lockstep:
            return costs
        return replace(costs, prefill_chunk=max(1, costs.prefill_chunk // ranks))

    def pooled(self, ranks: int) -> Costs:
        """One rank as large and as fast as ``ranks`` together: what no choice of ranks can beat."""
        return replace(
            self,
            prefill_tokens_per_s=self.prefill_tokens_per_s * ranks,
            step_s=self.step_s / ranks,
            step_per_request_s=self.step_per_request_s / ranks,
            step_per_kv_token_s=self.step_per_kv_token_s / ranks,
            pool_tokens=self.pool_tokens * ranks,
        )

    def prefill_s(self, tokens: int) -> float:
        """Time of one prefill step."""
        return tokens / self.prefill_tokens_per_s

    def decode_s(self, requests: int, kv_tokens: int) -> float:
        """Time of one decode step."""
        return (
            self.step_s + self.step_per_request_s * requests + self.step_per_kv_token_s * kv_tokens
        )

    def speed_for(self, requests: list[TraceRequest], ranks: int, load: float) -> float:
        """How many times as fast a trace must arrive to keep the ranks busy for a share ``load``.

        The work of a request is its prompt without any reuse and its tokens at a full pool's rate.
        """
        mean = sum(r.prompt_tokens + r.output_tokens / 2 for r in requests) / len(requests)
        full = self.pool_tokens / mean
        token_s = self.decode_s(round(full), self.pool_tokens) / full
        work_s = sum(self.prefill_s(r.prompt_tokens) + r.output_tokens * token_s for r in requests)
        return load * ranks * requests[-1].arrival_s / work_s
