"""Published results as data, and what the model says of each."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path

import yaml

from sglang_ascend.comm import cost_uniform
from sglang_ascend.comm.hardware import Hardware, load_hardware
from sglang_ascend.comm.topology import Topology
from sglang_ascend.deploy import deployment_file
from sglang_ascend.deploy.deployment import Phase, Speculation
from sglang_ascend.deploy.deployment_memory import of_rank
from sglang_ascend.deploy.deployment_shape import load as load_shape
from sglang_ascend.planner import batch, imbalance, step
from sglang_ascend.planner.constants import Constants
from sglang_ascend.planner.device import Device

FILE = Path(__file__).with_name("published.yaml")
HELD_OUT = Path(__file__).with_name("held_out.yaml")
_DISPATCH_ROW_BYTES, _COMBINE_ROW_BYTES, _TOP_K = 7168 + 512, 2 * 7168, 8


@dataclass(frozen=True)
class Point:
    """One published figure and the setting that it was measured in.

    Attributes:
        kind: "decode" and "prefill" (tokens a second and card), "prefill_ms" (a batch),
            "dispatch_us" and "combine_us".
        value: as published.
        assumed: what the source leaves open.
        change, speculation, constants: features, drafting and constants in place of the usual ones.
    """

    name: str
    kind: str
    value: float
    source: str
    assumed: str = "nothing"
    deployment: str = ""
    kv_tokens: float = 0.0
    output_tokens: float = 0.0
    prompt_tokens: float = 0.0
    requests_per_rank: float = 0.0
    tpot_ms: float = 0.0
    hardware: str = ""
    ranks: int = 0
    tokens: int = 0
    change: dict | None = None
    speculation: dict | None = None
    constants: dict | None = None


@functools.cache
def points(file: Path = FILE) -> tuple[Point, ...]:
    """All points of a file."""
    content = yaml.safe_load(file.read_text())
    return tuple(Point(name=name, **entry) for name, entry in content.items())


def predict(point: Point, constants: Constants) -> float:
    """The model's figure, in the unit of the published one."""
    if point.constants:
        constants = constants.changed(point.constants)
    if point.kind in ("dispatch_us", "combine_us"):
        return _exchange_us(point, constants)
    deployment = _read(point.deployment)
    phase = Phase.DECODE if point.kind == "decode" else Phase.PREFILL
    role = deployment.role(phase)
    role = dataclasses.replace(
        role, features=dataclasses.replace(role.features, **(point.change or {}))
    )
    hardware = _hardware(deployment.hardware)
    device = Device(_on(constants, deployment.hardware), constants)
    shape = _shape(deployment.model)
    cards = role.topology.nodes * role.topology.cards_per_node
    if phase is Phase.PREFILL:
        time = step.prefill(
            device, shape, deployment.precision, role, role.batch_tokens, point.prompt_tokens
        )
        if point.kind == "prefill_ms":
            return time.seconds * 1e3
        return role.batch_tokens / time.seconds / cards
    speculation = deployment.speculation
    if point.speculation:
        speculation = Speculation(**point.speculation)

    def tpot_s(requests: float) -> float:
        context = imbalance.longest_context(
            point.kv_tokens, point.output_tokens, requests * role.attention_tp, role.attention_dp
        )
        time = step.decode(
            device, shape, deployment.precision, speculation, role, requests, context
        )
        return time.seconds / speculation.tokens_per_step

    requests = point.requests_per_rank
    if not requests:
        memory = of_rank(shape, deployment.precision, role, hardware, speculation.draft_tokens)
        most = memory.kv_tokens / point.kv_tokens / role.attention_tp
        requests = batch.largest(tpot_s, point.tpot_ms / 1e3, most)
    return requests / tpot_s(requests) * role.ranks / cards


_read = functools.cache(deployment_file.read)
_shape = functools.cache(load_shape)
_hardware = functools.cache(load_hardware)


@functools.lru_cache(maxsize=256)
def _on(constants: Constants, hardware: str) -> Hardware:
    return constants.on(_hardware(hardware))


def _exchange_us(point: Point, constants: Constants) -> float:
    hardware = _on(constants, point.hardware)
    dies, cards = int(hardware.si("node.dies_per_card")), int(hardware.si("node.cards"))
    per_node = min(point.ranks, dies * cards)
    place = Topology(point.ranks // per_node, per_node // dies, dies)
    row = _COMBINE_ROW_BYTES if point.kind == "combine_us" else _DISPATCH_ROW_BYTES
    priced = cost_uniform.dispatch(place, hardware, point.tokens, _TOP_K, 1.0, row)
    return priced.seconds * 1e6
