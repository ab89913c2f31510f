"""What a deployment does with a workload: throughput, latency, memory, and where time goes."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from functools import cached_property

from sglang_ascend.comm.hardware import Hardware, load_hardware
from sglang_ascend.deploy import deployment_memory, deployment_shape
from sglang_ascend.deploy.deployment import Deployment, Phase, Role
from sglang_ascend.deploy.deployment_memory import DEFAULT_BATCH_TOKENS, RankMemory
from sglang_ascend.deploy.deployment_shape import ModelShape
from sglang_ascend.errors import ConfigError
from sglang_ascend.planner import batch, constants, imbalance, queueing, step
from sglang_ascend.planner.constants import Constants
from sglang_ascend.planner.device import Device
from sglang_ascend.planner.step import StepTime
from sglang_ascend.planner.workload import Workload


@dataclass(frozen=True)
class RolePrediction:
    """One role at its working point.

    Attributes:
        requests_per_rank: decode batch; 0 for prefill.
        step: of one instance.
        tpot_s: of decode at that batch; 0 for prefill.
        tokens_per_s: of all instances: prompt tokens computed, or output tokens.
        requests_per_s: that all instances sustain.
    """

    role: Role
    memory: RankMemory
    requests_per_rank: float
    step: StepTime
    tpot_s: float
    tokens_per_s: float
    requests_per_s: float

    @property
    def tokens_per_s_card(self) -> float:
        return self.tokens_per_s / self.role.cards


@dataclass(frozen=True)
class Prediction:
    """A deployment under a workload.

    Attributes:
        roles: by phase; a serve role appears as both phases, each with all its time.
        requests_per_s: that the deployment sustains, the slower role's share.
        bottleneck: the phase that limits it.
        transfer_s: of one request's keys and values from prefill to decode.
        ttft_s, tpot_s: by percentile at the workload's arrival rate; empty without one.
    """

    deployment: Deployment
    workload: Workload
    roles: dict[Phase, RolePrediction]
    requests_per_s: float
    bottleneck: Phase
    transfer_s: float
    ttft_s: dict[int, float] = field(default_factory=dict)
    tpot_s: dict[int, float] = field(default_factory=dict)

    @property
    def output_tokens_per_s_card(self) -> float:
        """Of all cards of the deployment."""
        return self.requests_per_s * self.workload.output_tokens / self.deployment.cards


@dataclass(frozen=True)
class Model:
    """The model bound to a deployment and a workload; everything else is derived."""

    deployment: Deployment
    workload: Workload
    constants: Constants = field(default_factory=constants.default)
    loaded: Hardware | None = None

    @cached_property
    def hardware(self) -> Hardware:
        return self.loaded or load_hardware(self.deployment.hardware)

    @cached_property
    def shape(self) -> ModelShape:
        return deployment_shape.load(self.deployment.model)

    @cached_property
    def device(self) -> Device:
        return Device(self.constants.on(self.hardware), self.constants)

    def memory(self, role: Role) -> RankMemory:
        drafts = 0 if role.phase is Phase.PREFILL else self.deployment.speculation.draft_tokens
        return deployment_memory.of_rank(
            self.shape, self.deployment.precision, role, self.hardware, drafts
        )

    def decode_step(self, role: Role, requests_per_rank: float) -> StepTime:
        work = self.workload
        context = imbalance.longest_context(
            work.mean_context,
            work.output_tokens if work.kv_tokens is None else 0.0,
            requests_per_rank * role.attention_tp,
            role.attention_dp,
        )
        return step.decode(
            self.device,
            self.shape,
            self.deployment.precision,
            self.deployment.speculation,
            role,
            requests_per_rank,
            context,
        )

    def tpot_s(self, role: Role, requests_per_rank: float) -> float:
        tokens = self.deployment.speculation.tokens_per_step
        return self.decode_step(role, requests_per_rank).seconds / tokens

    def prefill_step(self, role: Role, prompts: float) -> StepTime:
        """A batch of that many prompts; where groups do not divide them, the fullest decides."""
        work = self.workload
        if prompts < 8 * role.attention_dp:
            prompts = math.ceil(prompts / role.attention_dp) * role.attention_dp
        return step.prefill(
            self.device,
            self.shape,
            self.deployment.precision,
            role,
            prompts * work.new_tokens,
            work.new_tokens,
            work.input_tokens - work.new_tokens,
        )

    def prompts(self, role: Role) -> float:
        """Of a full prefill batch."""
        tokens = role.batch_tokens or DEFAULT_BATCH_TOKENS * role.ranks
        return max(1.0, tokens / self.workload.new_tokens)

    def most_requests(self, role: Role, memory: RankMemory) -> float:
        """Requests a rank whose keys and values fit."""
        return max(0.0, memory.kv_tokens / self.workload.mean_context / role.attention_tp)


def predict(
    deployment: Deployment,
    workload: Workload,
    own: Constants | None = None,
    hardware: Hardware | None = None,
) -> Prediction:
    """Predict a deployment that ``deployment_check`` accepts.

    Raises:
        ConfigError: the TPOT cannot be met at any batch, or not a single request fits.
    """
    model = Model(deployment, workload, own or constants.default(), hardware)
    roles: dict[Phase, RolePrediction] = {}
    for phase in (Phase.PREFILL, Phase.DECODE):
        if role := deployment.role(phase):
            run = _prefill if phase is Phase.PREFILL else _decode
            roles[phase] = run(model, role)
    bottleneck = min(roles, key=lambda phase: roles[phase].requests_per_s)
    sustained = roles[bottleneck].requests_per_s
    if deployment.role(Phase.DECODE) and deployment.role(Phase.DECODE).phase is Phase.SERVE:
        # Both phases take turns on the same cards.
        sustained = 1 / sum(1 / predicted.requests_per_s for predicted in roles.values())
    transfer = 0.0
    if len(deployment.roles) == 2:
        decode = roles[Phase.DECODE]
        nbytes = workload.input_tokens * decode.memory.kv_bytes_per_token
        reached = model.device.hardware.si("link.inter_node.efficiency")
        transfer = nbytes / (model.hardware.si("transfer.bandwidth") * reached)
    found = Prediction(deployment, workload, roles, sustained, bottleneck, transfer)
    if workload.arrival_per_s is None:
        return found
    return _under_load(model, found)


def _prefill(model: Model, role: Role) -> RolePrediction:
    prompts = model.prompts(role)
    time = model.prefill_step(role, prompts)
    per_s = role.instances * prompts / time.seconds
    tokens = per_s * model.workload.new_tokens
    return RolePrediction(role, model.memory(role), 0.0, time, 0.0, tokens, per_s)


def _decode(model: Model, role: Role) -> RolePrediction:
    memory, work = model.memory(role), model.workload
    most = model.most_requests(role, memory)
    if most * role.attention_dp < 1 and most < 1:
        raise ConfigError(
            f"role {role.phase}: not one request of {work.mean_context:g} tokens fits into a KV "
            f"pool of {memory.kv_tokens} tokens; use more ranks or narrower weights"
        )
    requests = role.requests_per_rank
    if requests is None and work.tpot_ms is None:
        requests = min(most, 64.0)
    if requests is None:
        requests = batch.largest(lambda n: model.tpot_s(role, n), work.tpot_ms / 1e3, most)
        if not requests:
            least = model.tpot_s(role, 1 / role.attention_tp) * 1e3
            raise ConfigError(
                f"role {role.phase} cannot meet a TPOT of {work.tpot_ms:g} ms at any batch; with "
                f"one request a group it takes {least:.1f} ms: ask for that, use drafts, or split "
                "attention over more ranks"
            )
    time = model.decode_step(role, requests)
    tpot = time.seconds / model.deployment.speculation.tokens_per_step
    tokens = requests * role.ranks * role.instances / tpot
    return RolePrediction(role, memory, requests, time, tpot, tokens, tokens / work.output_tokens)


def _under_load(model: Model, found: Prediction) -> Prediction:
    """Percentiles at the workload's arrival rate.

    Raises:
        ConfigError: more requests arrive than can be served.
    """
    rate = model.workload.arrival_per_s
    if rate >= found.requests_per_s:
        raise ConfigError(
            f"{rate:g} requests/s arrive and {found.requests_per_s:.3g} can be served (limit: "
            f"{found.bottleneck}); lower the rate, or give {found.bottleneck} "
            f"{rate / found.requests_per_s:.2f} times the cards"
        )
    ttft: dict[int, float] = {}
    tpot: dict[int, float] = {}
    # On shared cards prefill takes its share of the time from decode, and waits for a step to end.
    shared = model.deployment.role(Phase.DECODE) is model.deployment.role(Phase.PREFILL)
    left = 1 - rate / found.roles[Phase.PREFILL].requests_per_s if shared else 1.0
    step_s = found.roles[Phase.DECODE].step.seconds if shared else 0.0
    if prefill := found.roles.get(Phase.PREFILL):
        role = prefill.role
        waiting = queueing.prefill(
            rate / role.instances,
            lambda prompts: model.prefill_step(role, prompts).seconds,
            model.prompts(role),
        )
        more = found.transfer_s + step_s
        ttft = {p: seconds + more for p, seconds in waiting.ttft_s.items()}
    if decode := found.roles.get(Phase.DECODE):
        role = decode.role
        most = model.most_requests(role, decode.memory)
        tpot, _ = queueing.tpot_percentiles(
            rate,
            model.workload.output_tokens,
            lambda requests: model.tpot_s(role, requests) / left,
            max(most, decode.requests_per_rank),
            role.ranks * role.instances,
        )
    return dataclasses.replace(found, ttft_s=ttft, tpot_s=tpot)
