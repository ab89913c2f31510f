"""What makes a deployment impossible, found before a card is rented."""

from __future__ import annotations

from sglang_ascend.comm.hardware import Hardware, load_hardware
from sglang_ascend.deploy import deployment_memory, layout
from sglang_ascend.deploy.deployment import Deployment, Phase, Precision, Role, SharedExpert
from sglang_ascend.deploy.deployment_memory import ELEMENT_BYTES, RankMemory
from sglang_ascend.deploy.deployment_shape import ModelShape, load
from sglang_ascend.deploy.layout import Layout
from sglang_ascend.errors import ConfigError


def check(deployment: Deployment) -> dict[Phase, RankMemory]:
    """Return the memory budget of every role's rank.

    Raises:
        ConfigError: the first thing that cannot be, with the nearest that can.
    """
    shape = load(deployment.model)
    hardware = load_hardware(deployment.hardware)
    check_precision(deployment.precision, hardware)
    _check_speculation(deployment, shape)
    phases = [role.phase for role in deployment.roles]
    if Phase.SERVE in phases and len(phases) > 1:
        raise ConfigError(
            f"deployment {deployment.name}: role serve does prefill and decode; declare it alone, "
            "or prefill and decode in its place"
        )
    for role in deployment.roles:
        check_role(role, shape)
    budgets = deployment_memory.of_deployment(deployment, shape, hardware)
    for role in deployment.roles:
        check_memory(role, budgets[role.phase], deployment.speculation.draft_tokens)
    return budgets


def check_precision(precision: Precision, hardware: Hardware) -> None:
    """Raise ConfigError for a format that is unknown or that the hardware does not multiply."""
    rates = {key.removeprefix("compute."): key for key in hardware.constants}
    able = sorted(set(rates) & set(ELEMENT_BYTES))
    for use in ("weights", "activations", "kv"):
        if (value := getattr(precision, use)) not in ELEMENT_BYTES:
            raise ConfigError(
                f"precision {use}: {value!r} is unknown; choose one of {', '.join(ELEMENT_BYTES)}"
            )
    if ELEMENT_BYTES[precision.kv] < 1:
        raise ConfigError(
            f"precision kv: {precision.kv} packs two elements a byte, which no cache here does; "
            "choose int8, fp8, bf16 or fp32"
        )
    for dtype in {precision.activations, precision.wide}:
        if dtype not in able:
            raise ConfigError(
                f"hardware {hardware.name} has no {dtype} matrix multiplication; it has "
                f"{', '.join(able)}"
            )


def _check_speculation(deployment: Deployment, shape: ModelShape) -> None:
    speculation = deployment.speculation
    if speculation.draft_tokens < 0 or not 0 <= speculation.acceptance <= 1:
        raise ConfigError(
            f"speculation: {speculation.draft_tokens} draft tokens at acceptance "
            f"{speculation.acceptance:g}; give 0 or more, and a share from 0 to 1"
        )
    if speculation.draft_tokens and not shape.mtp_layers:
        raise ConfigError(
            f"speculation: model {shape.name} has no MTP layer; set draft_tokens to 0"
        )


def check_role(role: Role, shape: ModelShape) -> None:
    """Raise ConfigError where heads, experts or batch cannot be spread over the role's ranks."""
    where = f"role {role.phase}"
    if role.instances < 1 or role.attention_tp < 1:
        raise ConfigError(f"{where}: instances and attention_tp must be 1 or more")
    if role.ranks % role.attention_tp:
        raise ConfigError(
            f"{where}: attention_tp {role.attention_tp} does not divide the {role.ranks} ranks of "
            f"an instance; nearest: {_nearest_divisor(role.ranks, role.attention_tp)}"
        )
    ranks = Layout(role.ranks, role.attention_dp, 1)
    layout.check_model(ranks, shape.config, role.ranks if shape.experts else 1)
    _check_experts(role, shape, where)
    if not 0 < role.memory_fraction < 1:
        raise ConfigError(f"{where}: memory_fraction {role.memory_fraction:g} is not from 0 to 1")
    if role.features.micro_batches not in (1, 2):
        raise ConfigError(
            f"{where}: micro_batches {role.features.micro_batches}; choose 1 (none) or 2"
        )
    for name in ("requests_per_rank", "batch_tokens"):
        if (value := getattr(role, name)) is not None and value <= 0:
            raise ConfigError(f"{where}: {name} {value:g}; give more than 0, or leave it out")


def _check_experts(role: Role, shape: ModelShape, where: str) -> None:
    dedicated = role.shared_expert is SharedExpert.DEDICATED
    if dedicated != (role.shared_ranks > 0) or (dedicated and not shape.shared_experts):
        raise ConfigError(
            f"{where}: shared_expert {role.shared_expert} with shared_ranks {role.shared_ranks} "
            f"and {shape.shared_experts} shared expert(s) in the model; dedicated needs all three "
            "to be above 0, anything else shared_ranks 0"
        )
    holders = role.ranks - role.shared_ranks
    if not shape.experts:
        if role.redundant_experts:
            raise ConfigError(f"{where}: model {shape.name} has no experts to copy")
        return
    if holders < 1:
        raise ConfigError(
            f"{where}: shared_ranks {role.shared_ranks} leaves none of {role.ranks} ranks for "
            "routed experts"
        )
    slots = shape.experts + role.redundant_experts
    if role.redundant_experts < 0 or slots % holders or slots < holders:
        fitting = -(-shape.experts // holders) * holders - shape.experts
        raise ConfigError(
            f"{where}: {shape.experts} experts and {role.redundant_experts} redundant ones cannot "
            f"be spread evenly over {holders} ranks; nearest: redundant_experts {fitting} "
            f"({(shape.experts + fitting) // holders} slots a rank)"
        )


def _nearest_divisor(number: int, wanted: int) -> int:
    divisors = [d for d in range(1, number + 1) if number % d == 0]
    return min(divisors, key=lambda d: abs(d - wanted))


def check_memory(role: Role, budget: RankMemory, draft_tokens: int) -> None:
    """Raise ConfigError where weights and buffers, or the declared batch, do not fit."""
    gib = 1 << 30
    taken = sum(budget.parts.values())
    largest = max(budget.parts, key=budget.parts.__getitem__)
    if budget.kv_tokens < 1:
        raise ConfigError(
            f"role {role.phase}: a rank needs {taken / gib:.1f} GiB before its KV pool and may use "
            f"{budget.usable / gib:.1f} GiB; the largest part is {largest} "
            f"({budget.parts[largest] / gib:.1f} GiB): spread it over more ranks, or choose "
            "narrower weights"
        )
    per_step = (role.requests_per_rank or 0) * (1 + draft_tokens) * role.attention_tp
    if role.phase is not Phase.PREFILL and per_step > budget.kv_tokens:
        raise ConfigError(
            f"role {role.phase}: {role.requests_per_rank:g} requests a rank do not fit into a KV "
            f"pool of {budget.kv_tokens} tokens; lower requests_per_rank"
        )
