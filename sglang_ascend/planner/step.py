"""One step of one instance: layers, head, drafts and host, and where each millisecond goes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from sglang_ascend.deploy.deployment import Precision, Role, Speculation
from sglang_ascend.deploy.deployment_shape import ModelShape
from sglang_ascend.planner import layer
from sglang_ascend.planner.device import Device, Work
from sglang_ascend.planner.layer import LayerTime
from sglang_ascend.planner.layout import Step


@dataclass(frozen=True)
class StepTime:
    """A forward pass and what belongs to it.

    Attributes:
        layers: time of each kind of layer ("dense", "moe", "draft") and how many there are.
        parts: seconds by what takes them; they add up to ``seconds``.
    """

    layers: Mapping[str, tuple[LayerTime, int]]
    parts: Mapping[str, float]

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())


def decode(
    device: Device,
    shape: ModelShape,
    precision: Precision,
    speculation: Speculation,
    role: Role,
    requests_per_rank: float,
    context: float,
) -> StepTime:
    """A verify step of all requests, followed by the drafts for the next one.

    Args:
        requests_per_rank: mean over the ranks of an attention group.
        context: mean tokens in the cache of a request.
    """
    requests = requests_per_rank * role.attention_tp
    verify = Step(
        shape, precision, role, requests * (1 + speculation.draft_tokens), requests, context, False
    )
    layers = _main_layers(device, verify)
    parts = _layer_parts(layers)
    parts["head and sampling"] = head(device, verify, verify.tokens).seconds
    drafts = speculation.draft_tokens
    if drafts:
        parts["drafts"] = _drafts(device, verify, drafts, layers)
    host = device.constants.host_step
    if drafts and not role.features.fused_step:
        host += drafts * device.constants.host_draft
    parts["host"] = host
    return StepTime(layers, parts)


def prefill(
    device: Device,
    shape: ModelShape,
    precision: Precision,
    role: Role,
    batch_tokens: float,
    prompt_tokens: float,
    prefix_tokens: float = 0.0,
) -> StepTime:
    """One batch of prompts.

    Args:
        batch_tokens: new tokens of the whole instance.
        prompt_tokens: new tokens of each prompt.
        prefix_tokens: tokens of each prompt that the cache holds already.
    """
    tokens = batch_tokens / role.attention_dp
    context = prefix_tokens + (prompt_tokens + 1) / 2
    step = Step(shape, precision, role, tokens, tokens / prompt_tokens, context, True)
    layers = _main_layers(device, step)
    parts = _layer_parts(layers)
    parts["head and sampling"] = head(device, step, step.requests).seconds
    parts["host"] = device.constants.host_step
    return StepTime(layers, parts)


def head(device: Device, step: Step, tokens: float) -> Work:
    """Embedding, final norm, logits and sampling; the vocabulary is split over the group."""
    shape, group = step.shape, step.group
    columns = shape.vocab / group
    weights = shape.hidden * columns * step.wide_width
    row = shape.hidden * step.wide_width + columns * 4
    logits = device.output_layer(tokens, shape.hidden, columns, step.wide, weights, row)
    return logits + device.vector(tokens * columns * 4 * 2, kernels=4)


def _main_layers(device: Device, step: Step) -> dict[str, tuple[LayerTime, int]]:
    shape = step.shape
    layers = {}
    if shape.dense_layers:
        layers["dense"] = (layer.predict(device, step, moe=False), shape.dense_layers)
    if shape.moe_layers:
        layers["moe"] = (layer.predict(device, step, moe=True), shape.moe_layers)
    return layers


def _drafts(device: Device, verify: Step, drafts: int, layers) -> float:
    """The first draft runs over all verified tokens, each further one over a token a request."""
    shape, seconds = verify.shape, 0.0
    for index in range(drafts):
        tokens = verify.tokens if index == 0 else verify.requests
        step = dataclasses.replace(verify, tokens=tokens)
        one = layer.predict(device, step, moe=shape.experts > 0)
        row = 3 * shape.hidden * verify.wide_width
        weights = 2 * shape.hidden**2 * verify.weight_width
        joined = device.matmul(
            step.share, 2 * shape.hidden, shape.hidden, step.narrow, weights, row
        )
        seconds += one.total_s + joined.seconds + head(device, step, step.requests).seconds
        layers.setdefault("draft", (one, drafts))
    return seconds


_GROUPS = {
    "attention": ("attention",),
    "attention projections": ("attention_down", "attention_in", "attention_out"),
    "experts and MLP": ("experts", "mlp"),
    "shared expert": ("shared_expert",),
    "norms, gate, routing": (
        "attention_norm", "mlp_norm", "gate", "route", "unroute", "expert_sum",
    ),
}  # fmt: skip


def _layer_parts(layers: Mapping[str, tuple[LayerTime, int]]) -> dict[str, float]:
    """Compute by kind, and the rest of the layers: network that no compute hides."""
    parts = dict.fromkeys((*_GROUPS, "exposed network"), 0.0)
    for time, count in layers.values():
        groups = {
            group: time.micro_batches * sum(time.seconds.get(name, 0.0) for name in names)
            for group, names in _GROUPS.items()
        }
        for group, seconds in groups.items():
            parts[group] += count * seconds
        parts["exposed network"] += count * max(0.0, time.total_s - sum(groups.values()))
    return {name: seconds for name, seconds in parts.items() if seconds}
