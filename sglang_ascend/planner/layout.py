"""One rank's part in one step of a role: whose tokens it holds and what it computes of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sglang_ascend.comm.topology import Topology
from sglang_ascend.deploy.deployment import Precision, Role, SharedExpert
from sglang_ascend.deploy.deployment_memory import ELEMENT_BYTES
from sglang_ascend.deploy.deployment_shape import ModelShape


@dataclass(frozen=True)
class Step:
    """Work of one forward pass of one rank (a mean rank where ranks differ).

    Attributes:
        tokens: new tokens of one attention group, all its ranks together.
        requests: of one attention group.
        context: mean keys that a new token attends to.
        prefill: prompts (keys and values expanded, causal) or decode (absorbed, over the cache).
    """

    shape: ModelShape
    precision: Precision
    role: Role
    tokens: float
    requests: float
    context: float
    prefill: bool

    @property
    def group(self) -> int:
        """Ranks of an attention group."""
        return self.role.attention_tp

    @property
    def share(self) -> float:
        """Tokens of a rank where the group's tokens are split."""
        return self.tokens / self.group

    @property
    def token_wise(self) -> float:
        """Tokens that a rank's norms run on."""
        return self.share if self.role.features.flashcomm else self.tokens

    @property
    def world_tokens(self) -> float:
        return self.tokens * self.role.attention_dp

    @property
    def narrow(self) -> str:
        """Format that linear layers multiply in."""
        return self.precision.activations

    @property
    def wide(self) -> str:
        return self.precision.wide

    @cached_property
    def weight_width(self) -> float:
        return ELEMENT_BYTES[self.precision.weights]

    @cached_property
    def narrow_width(self) -> float:
        return ELEMENT_BYTES[self.precision.activations]

    @cached_property
    def wide_width(self) -> float:
        return ELEMENT_BYTES[self.precision.wide]

    @cached_property
    def kv_width(self) -> float:
        return ELEMENT_BYTES[self.precision.kv]

    @property
    def wire_width(self) -> float:
        """Bytes of an element of a token on its way to the experts."""
        return self.narrow_width if self.role.features.quantised_wire else self.wide_width

    @property
    def holders(self) -> int:
        """Ranks with routed experts."""
        return self.role.ranks - self.role.shared_ranks

    @property
    def shared_here(self) -> bool:
        dedicated = self.role.shared_expert is SharedExpert.DEDICATED
        return self.shape.shared_experts > 0 and not dedicated

    @cached_property
    def group_topology(self) -> Topology:
        """Of one attention group; groups start at node boundaries or divide a node."""
        place = self.role.topology
        dies = min(place.dies_per_card, self.group)
        per_node = min(self.group, place.ranks_per_node)
        return Topology(max(1, self.group // per_node), max(1, per_node // dies), dies)
