"""Memory of one rank of a deployment: weights by part, communication buffers, and the KV pool."""

from __future__ import annotations

from dataclasses import dataclass

from sglang_ascend.comm.hardware import Hardware
from sglang_ascend.deploy import memory
from sglang_ascend.deploy.deployment import (
    Deployment,
    Phase,
    Precision,
    Role,
    SharedExpert,
    Transport,
)
from sglang_ascend.deploy.deployment_shape import ModelShape

#: Bytes of an element; a format's scales, under one percent, are left out.
ELEMENT_BYTES = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.5,
    "fp4": 0.5,
}
#: Tokens of a prefill batch on a rank where nothing is declared.
DEFAULT_BATCH_TOKENS = 4096
_FLAG_BYTES = 2 << 20  # of a dispatch window: counts and flags


@dataclass(frozen=True)
class RankMemory:
    """Bytes on one rank, and the KV tokens that fit beside them.

    Attributes:
        parts: bytes by what they hold.
        usable: bytes that the parts and the KV pool may take together.
        kv_bytes_per_token: on this rank.
        kv_tokens: size of the pool; negative where the parts alone do not fit.
    """

    parts: dict[str, int]
    usable: int
    kv_bytes_per_token: int
    kv_tokens: int

    @property
    def weight_bytes(self) -> int:
        """Without the buffers."""
        return sum(size for name, size in self.parts.items() if "buffers" not in name)


def of_rank(
    shape: ModelShape, precision: Precision, role: Role, hardware: Hardware, draft_tokens: int = 0
) -> RankMemory:
    """The budget of a rank that holds routed experts."""
    wide = ELEMENT_BYTES[precision.wide]
    narrow = ELEMENT_BYTES[precision.weights]
    layers, moe = shape.layers, shape.moe_layers
    if draft_tokens and shape.mtp_layers:
        layers, moe = layers + 1, moe + (1 if shape.experts else 0)
    heads = shape.attention_head_parameters / role.attention_tp
    slots = role.slots_per_rank(shape.experts) if shape.experts else 0
    shared = {
        SharedExpert.REPLICATED: 1.0,
        SharedExpert.TENSOR_PARALLEL: 1.0 / role.attention_tp,
        SharedExpert.DEDICATED: 0.0,
    }[role.shared_expert]
    dense = shape.dense_layers + layers - shape.layers - (moe - shape.moe_layers)
    split = role.attention_tp if role.features.dense_tensor_parallel else 1
    embeddings = shape.vocab * shape.hidden * wide * (1 if shape.tied_embeddings else 2)
    parts = {
        "attention": layers * (shape.attention_replicated_parameters + heads) * narrow,
        "routed experts": moe * slots * shape.expert_parameters * narrow,
        "shared experts": moe * shared * shape.shared_experts * shape.expert_parameters * narrow,
        "gates": moe * shape.hidden * shape.experts * 4,
        "dense layers": dense * shape.dense_mlp_parameters * narrow / split,
        "embeddings and head": embeddings / role.attention_tp,
        "draft input projection": (layers - shape.layers) * 2 * shape.hidden**2 * narrow,
        "communication buffers": buffer_bytes(shape, precision, role, slots, draft_tokens),
    }
    whole = {name: int(size) for name, size in parts.items() if size}
    usable = int(hardware.si("memory.capacity") * role.memory_fraction)
    per_token = memory.kv_bytes_per_token(
        {**shape.config, "num_hidden_layers": layers},
        int(ELEMENT_BYTES[precision.kv]),
        role.attention_tp,
    )
    fits = memory.pool_tokens(usable, sum(whole.values()), per_token)
    return RankMemory(whole, usable, per_token, fits)


def tokens_per_rank(role: Role, draft_tokens: int) -> float:
    """Tokens that a rank brings to the experts in one step, at the declared batch."""
    if role.phase is Phase.PREFILL:
        return role.batch_tokens / role.ranks if role.batch_tokens else DEFAULT_BATCH_TOKENS
    return (role.requests_per_rank or 64) * (1 + draft_tokens)


def buffer_bytes(
    shape: ModelShape, precision: Precision, role: Role, slots: int, draft_tokens: int
) -> float:
    """Of the token exchange, twice each, since two operations in a row must not share one.

    Dispatch: a window for every source rank, of its tokens times the local experts that one of them
    may reach (HCCL_BUFFSIZE as in sgl-kernel-npu's documents). All-gather: every rank's tokens,
    and as much again for the results.
    """
    tokens = tokens_per_rank(role, draft_tokens)
    row = shape.hidden * ELEMENT_BYTES[precision.wide]
    if not shape.experts or role.ranks == 1:
        return 2 * tokens * row * (role.attention_tp > 1)
    if role.transport is Transport.ALLGATHER or role.phase is Phase.PREFILL:
        return 2 * tokens * role.ranks * row
    reach = min(slots, shape.top_k)
    return 2 * (tokens * role.ranks * reach * row + _FLAG_BYTES)


def of_deployment(
    deployment: Deployment, shape: ModelShape, hardware: Hardware
) -> dict[Phase, RankMemory]:
    """The budget of a rank of every role."""
    return {
        role.phase: of_rank(
            shape,
            deployment.precision,
            role,
            hardware,
            deployment.speculation.draft_tokens if role.phase is not Phase.PREFILL else 0,
        )
        for role in deployment.roles
    }
