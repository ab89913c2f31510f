"""A deployment: which model runs in which precision on which cards, in which roles, in what layout.

The one place in which a topology is declared; pure data, read from YAML by `deployment_file`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from sglang_ascend.comm.topology import Topology


class Phase(StrEnum):
    """What a role computes: prompts, output tokens, or both on the same cards."""

    PREFILL = "prefill"
    DECODE = "decode"
    SERVE = "serve"


class SharedExpert(StrEnum):
    """Where the shared expert lives.

    ``replicated``: on every rank, for its own tokens. ``tensor_parallel``: split over the attention
    group. ``dedicated``: on ranks that hold nothing else of the layer's experts.
    """

    REPLICATED = "replicated"
    TENSOR_PARALLEL = "tensor_parallel"
    DEDICATED = "dedicated"


class Transport(StrEnum):
    """How tokens reach their experts."""

    ALLGATHER = "allgather"
    DISPATCH = "dispatch"


@dataclass(frozen=True)
class Precision:
    """Number formats: of the linear layers' weights, of their inputs, and of the KV cache.

    Formats are int4, int8, fp8, fp4, bf16 and fp32; attention and the head always compute in bf16,
    or in fp32 where the weights are fp32.
    """

    weights: str = "bf16"
    activations: str = "bf16"
    kv: str = "bf16"

    @property
    def wide(self) -> str:
        """The format of residuals, attention scores and the head."""
        return "fp32" if self.activations == "fp32" else "bf16"


@dataclass(frozen=True)
class Speculation:
    """Multi-token prediction: drafts a step, and the share of drafts that is accepted."""

    draft_tokens: int = 0
    acceptance: float = 0.0

    @property
    def tokens_per_step(self) -> float:
        """Expected tokens that a verify step yields: a draft counts only after those before it."""
        return 1.0 + math.fsum(self.acceptance**i for i in range(1, self.draft_tokens + 1))


@dataclass(frozen=True)
class Features:
    """Optimisations that change what a layer does or in what order.

    Attributes:
        flashcomm: all-reduce as reduce-scatter and a later, smaller all-gather, so that token-wise
            work runs on a rank's share of the tokens.
        tp_dp_conversion: all-to-all before a whole output projection in place of the reduce-scatter
            after it.
        multi_stream: gate, shared expert and token exchange on three streams.
        prefetch: weights of the next attention layer go to L2 while the combine is on the wire.
        micro_batches: batches that take turns on compute and network; 1 for none.
        node_dedup: dispatch sends a token once to a node and spreads it there.
        two_level: collectives in stages within and between nodes; False for flat rings.
        quantised_wire: tokens travel to their experts in the activations' format.
        quantised_combine: results travel back in that format too.
        dense_tensor_parallel: MLPs of layers without experts are split over the attention group;
            else each rank has them whole, for its share of the tokens.
        balanced_experts: experts are placed by load (EPLB and the like).
        fused_step: drafting behind the main model without a look at the host between them.
    """

    flashcomm: bool = True
    tp_dp_conversion: bool = False
    multi_stream: bool = False
    prefetch: bool = False
    micro_batches: int = 1
    node_dedup: bool = False
    two_level: bool = True
    quantised_wire: bool = True
    quantised_combine: bool = False
    dense_tensor_parallel: bool = True
    balanced_experts: bool = True
    fused_step: bool = True


@dataclass(frozen=True)
class Role:
    """One role: equal instances, each of them one group of expert-parallel ranks.

    Attributes:
        instances: how many there are.
        topology: of one instance.
        attention_tp: ranks that share an attention layer's heads.
        redundant_experts: expert slots of a layer beyond the model's own experts.
        shared_ranks: ranks that hold a shared expert only (``SharedExpert.DEDICATED``).
        requests_per_rank: decode batch of one rank, a mean over its attention group; None for the
            largest that meets the workload's TPOT.
        batch_tokens: prompt tokens of a prefill batch of the whole instance; None for 4096 a rank.
        memory_fraction: share of a rank's memory for weights and KV pool.
    """

    phase: Phase
    topology: Topology
    instances: int = 1
    attention_tp: int = 1
    redundant_experts: int = 0
    shared_expert: SharedExpert = SharedExpert.REPLICATED
    shared_ranks: int = 0
    transport: Transport = Transport.DISPATCH
    requests_per_rank: float | None = None
    batch_tokens: int | None = None
    memory_fraction: float = 0.9
    features: Features = field(default_factory=Features)

    @property
    def ranks(self) -> int:
        """Of one instance."""
        return self.topology.world_size

    @property
    def attention_dp(self) -> int:
        return self.ranks // self.attention_tp

    @property
    def cards(self) -> int:
        """Of all instances."""
        return self.instances * self.topology.nodes * self.topology.cards_per_node

    def slots_per_rank(self, experts: int) -> int:
        """Routed expert slots on each of the ranks that hold any."""
        return (experts + self.redundant_experts) // (self.ranks - self.shared_ranks)


@dataclass(frozen=True)
class Deployment:
    """Everything that is declared of a deployment."""

    name: str
    model: str
    hardware: str
    precision: Precision
    speculation: Speculation
    roles: tuple[Role, ...]

    def role(self, phase: Phase) -> Role | None:
        """The role that computes ``phase``, be it alone or as part of ``serve``."""
        return next((r for r in self.roles if r.phase in (phase, Phase.SERVE)), None)

    @property
    def cards(self) -> int:
        return sum(role.cards for role in self.roles)
