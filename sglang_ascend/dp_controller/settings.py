"""Constants of the policy, with what each was chosen by."""

from __future__ import annotations

from dataclasses import dataclass

from sglang_ascend.errors import ConfigError


@dataclass(frozen=True)
class PolicySettings:
    """How far affinity may go, and what a rank's load weighs.

    The weights and both parts of the bound were chosen with ``python -m benchmark.dp_controller``
    on the Mooncake trace and tried on the Azure trace, which has no shared prefixes. Results depend
    on them little: half or twice each value moves mean TTFT and KV balance by a few per cent.

    Attributes:
        spread: affinity may use a rank whose KV is above the mean by this share of the mean...
        spread_of_pool: ...or by this share of one rank's KV pool, whichever is more. While pools
            are nearly empty an uneven spread costs nothing, and a strict share of a small mean
            would forbid any reuse.
        miss_weight: weight of a token that must be computed against one that already waits for
            prefill on the rank. Above 1 because a miss also makes a second copy of the prefix.
        kv_weight: weight of a token of predicted KV against one that waits for prefill.
        max_sessions: sessions remembered; beyond that the longest unused one is forgotten.
    """

    spread: float = 0.25
    spread_of_pool: float = 0.1
    miss_weight: float = 2.0
    kv_weight: float = 0.05
    max_sessions: int = 100_000

    def __post_init__(self) -> None:
        for name in ("spread", "spread_of_pool", "miss_weight", "kv_weight"):
            if (value := getattr(self, name)) < 0:
                raise ConfigError(f"{name} {value} is negative; give 0 or more")
        if self.max_sessions < 1:
            raise ConfigError(f"max_sessions {self.max_sessions} is too small; give 1 or more")
