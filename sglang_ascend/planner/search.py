"""The deployment with the most output tokens a card that meets a TPOT."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sglang_ascend.comm.hardware import Hardware, load_hardware
from sglang_ascend.deploy import deployment_check
from sglang_ascend.deploy.deployment import Deployment, Phase, Precision, Role, Speculation
from sglang_ascend.deploy.deployment_shape import ModelShape
from sglang_ascend.deploy.deployment_shape import load as load_shape
from sglang_ascend.errors import ConfigError
from sglang_ascend.planner import batch, candidates
from sglang_ascend.planner.predict import Model
from sglang_ascend.planner.workload import Workload

_BATCHES = (1, 4, 16, 32, 64, 128, 256, 512)
_REFINED = 12  # candidates that are looked at closely, besides the best of each size
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Question:
    """What to search for.

    Attributes:
        cards: that may be used; fewer are fine.
        acceptance: of each draft, where the model can draft.
        most_drafts: deepest MTP to look at.
    """

    hardware: str
    cards: int
    workload: Workload
    model: str = "deepseek-r1"
    precision: Precision = Precision("int8", "int8", "bf16")
    acceptance: float = 0.7
    most_drafts: int = 3


@dataclass(frozen=True)
class Unit:
    """One instance of a role at a working point.

    Attributes:
        requests_per_s: that it sustains.
        tpot_s: 0 for prefill.
    """

    role: Role
    speculation: Speculation
    requests_per_s: float
    tpot_s: float

    @property
    def per_card(self) -> float:
        return self.requests_per_s / self.role.cards


@dataclass(frozen=True)
class Answer:
    """The best deployment, and how it compares.

    Attributes:
        front: decode working points that no other beats in both TPOT and throughput a card.
        looked_at: instances times working points that were priced.
        output_per_card: tokens a second and card over all cards used.
    """

    deployment: Deployment
    output_per_card: float
    front: tuple[Unit, ...]
    looked_at: int
    alternatives: tuple[tuple[str, float], ...] = field(default_factory=tuple)


def search(question: Question, progress: Progress = lambda done, of: None) -> Answer:
    """Look at every candidate and put the best prefill and decode instances together.

    Raises:
        ConfigError: nothing fits, or nothing meets the TPOT; with the nearest that would.
    """
    hardware, shape = load_hardware(question.hardware), load_shape(question.model)
    deployment_check.check_precision(question.precision, hardware)
    if question.cards < 1:
        raise ConfigError(f"--cards {question.cards}; give 1 or more")
    if question.workload.tpot_ms is None:
        raise ConfigError("the search needs a limit on TPOT: give --tpot-ms")
    places = candidates.topologies(hardware, question.cards)
    prefills: list[Unit] = []
    points: list[Unit] = []
    for done, place in enumerate(places):
        prefills += _prefills(question, hardware, shape, place)
        points += _decodes(question, hardware, shape, place)
        progress(done + 1, 2 * len(places))
    if not points or not prefills:
        raise ConfigError(_too_small(question, hardware, shape))
    points = _beside(question, prefills, points)
    limit = question.workload.tpot_ms / 1e3
    chosen = _promising(points, limit)
    meeting: list[Unit] = []
    for done, unit in enumerate(chosen):
        found = _refined(question, hardware, shape, unit, limit)
        points += found
        meeting += [unit for unit in found if unit.tpot_s <= limit]
        progress(len(chosen) + done + 1, 2 * len(chosen))
    if not meeting:
        fastest = min(points, key=lambda unit: unit.tpot_s)
        raise ConfigError(
            f"no deployment of {question.cards} {question.hardware} cards meets a TPOT of "
            f"{question.workload.tpot_ms:g} ms; the fastest reaches {fastest.tpot_s * 1e3:.1f} ms "
            f"({_describe(fastest)}): ask for that or more"
        )
    return _combined(question, prefills, meeting, pareto(points), len(prefills) + len(points))


def _model(question: Question, hardware: Hardware, role: Role, drafts: int) -> Model:
    speculation = Speculation(drafts, question.acceptance if drafts else 0.0)
    deployment = Deployment(
        "candidate", question.model, question.hardware, question.precision, speculation, (role,)
    )
    return Model(deployment, question.workload, loaded=hardware)


def _beside(question: Question, prefills: list[Unit], decodes: list[Unit]) -> list[Unit]:
    """Decode units that leave room for prefill.

    Raises:
        ConfigError: none does.
    """
    smallest = min(unit.role.cards for unit in prefills)
    fitting = [u for u in decodes if u.role.cards + smallest <= question.cards]
    if not fitting:
        least = min(unit.role.cards for unit in decodes)
        raise ConfigError(
            f"{question.cards} cards hold a prefill or a decode instance, not both: the smallest "
            f"take {smallest} and {least} cards; give {smallest + least} or more"
        )
    return fitting


def _prefills(question: Question, hardware: Hardware, shape: ModelShape, place) -> list[Unit]:
    units = []
    for role in candidates.roles(shape, Phase.PREFILL, place):
        model = _model(question, hardware, role, 0)
        if model.memory(role).kv_tokens < question.workload.input_tokens:
            continue
        prompts = model.prompts(role)
        seconds = model.prefill_step(role, prompts).seconds
        units.append(Unit(role, model.deployment.speculation, prompts / seconds, 0.0))
    return units


def _decodes(question: Question, hardware: Hardware, shape: ModelShape, place) -> list[Unit]:
    """Every role at a few batches, with one draft where the model can."""
    units = []
    drafts = min(1, question.most_drafts, shape.mtp_layers)
    for role in candidates.roles(shape, Phase.DECODE, place):
        model = _model(question, hardware, role, drafts)
        most = model.most_requests(role, model.memory(role))
        for requests in _BATCHES:
            if requests > most:
                break
            units.append(_decode_unit(model, role, requests))
            if units[-1].tpot_s > 2 * question.workload.tpot_ms / 1e3:
                break
    return units


def _decode_unit(model: Model, role: Role, requests: float) -> Unit:
    tpot = model.tpot_s(role, requests)
    per_s = requests * role.ranks / tpot / model.workload.output_tokens
    role = dataclasses.replace(role, requests_per_rank=float(requests))
    return Unit(role, model.deployment.speculation, per_s, tpot)


def _promising(points: list[Unit], limit: float) -> list[Unit]:
    """The best candidates overall and of each size, by throughput a card near the limit.

    Where none meets the limit, the fastest stand in: another number of drafts may yet do it.
    """
    meeting = [unit for unit in points if unit.tpot_s <= limit]
    if not meeting:
        return sorted(points, key=lambda unit: unit.tpot_s)[:_REFINED]
    best: dict[Role, Unit] = {}
    for unit in meeting:
        key = dataclasses.replace(unit.role, requests_per_rank=None)
        if key not in best or unit.per_card > best[key].per_card:
            best[key] = unit
    ranked = sorted(best.values(), key=lambda unit: -unit.per_card)
    of_size = {unit.role.cards: unit for unit in reversed(ranked)}
    return list({id(unit): unit for unit in (*ranked[:_REFINED], *of_size.values())}.values())


def _refined(
    question: Question, hardware: Hardware, shape: ModelShape, unit: Unit, limit: float
) -> list[Unit]:
    """The candidate with every number of drafts, at the largest whole batch in the limit."""
    units = []
    for drafts in range((question.most_drafts if shape.mtp_layers else 0) + 1):
        role = dataclasses.replace(unit.role, requests_per_rank=None)
        model = _model(question, hardware, role, drafts)
        most = model.most_requests(role, model.memory(role))
        requests = batch.largest(functools.partial(model.tpot_s, role), limit, most)
        units.append(_decode_unit(model, role, max(1, math.floor(requests))))
    return units


def pareto(units: Iterable[Unit]) -> tuple[Unit, ...]:
    """Units that none beats in both TPOT and throughput a card, fastest first."""
    front: list[Unit] = []
    for unit in sorted(units, key=lambda unit: (unit.tpot_s, -unit.per_card)):
        if not front or unit.per_card > front[-1].per_card:
            front.append(unit)
    return tuple(front)


def _combined(
    question: Question, prefills: list[Unit], decodes: list[Unit], front, looked: int
) -> Answer:
    """Whole numbers of the best instances of each size that balance prefill and decode."""
    found: list[tuple[float, int, int, Unit, Unit]] = []
    for first in _best_by_size(prefills):
        for second in _best_by_size(decodes):
            for count in range(1, question.cards // second.role.cards + 1):
                left = question.cards - count * second.role.cards
                wanted = math.ceil(count * second.requests_per_s / first.requests_per_s)
                for several in {max(1, wanted - 1), wanted}:
                    if several * first.role.cards <= left:
                        rate = min(count * second.requests_per_s, several * first.requests_per_s)
                        found.append((rate, several, count, first, second))
    output = question.workload.output_tokens

    def used(entry) -> int:
        return entry[1] * entry[3].role.cards + entry[2] * entry[4].role.cards

    best = max(found, key=lambda entry: (round(entry[0], 9), -used(entry)))
    rate, several, count, first, second = best
    deployment = Deployment(
        name=f"{question.hardware}_{question.cards}_{question.workload.name}",
        model=question.model,
        hardware=question.hardware,
        precision=question.precision,
        speculation=second.speculation,
        roles=(
            dataclasses.replace(first.role, instances=several),
            dataclasses.replace(second.role, instances=count),
        ),
    )
    others = sorted(found, key=lambda entry: -entry[0])
    rows: dict[str, float] = {}
    for entry in others:
        rows.setdefault(_describe(entry[4]), entry[0] * output / question.cards)
    return Answer(deployment, rate * output / used(best), front, looked, tuple(rows.items())[:8])


def _best_by_size(units: list[Unit]) -> list[Unit]:
    best: dict[int, Unit] = {}
    for unit in units:
        held = best.get(unit.role.cards)
        if held is None or unit.requests_per_s > held.requests_per_s:
            best[unit.role.cards] = unit
    return list(best.values())


def _describe(unit: Unit) -> str:
    role = unit.role
    text = f"{role.cards} cards, attention TP {role.attention_tp}, {role.transport}"
    if role.redundant_experts:
        text += f", {role.redundant_experts} copies"
    if role.features.micro_batches > 1:
        text += ", two micro-batches"
    if unit.speculation.draft_tokens:
        text += f", {unit.speculation.draft_tokens} draft(s)"
    return text


def text(answer: Answer, question: Question) -> str:
    """The front and the best deployments as tables."""
    output = question.workload.output_tokens
    lines = [
        "decode instances that no other beats in TPOT and throughput (cards of decode only):",
        f"  {'TPOT ms':>8s}{'tokens/s a card':>17s}{'requests a rank':>17s}  instance",
    ]
    for unit in answer.front:
        lines.append(
            f"  {unit.tpot_s * 1e3:8.1f}{unit.per_card * output:17.0f}"
            f"{unit.role.requests_per_rank:17.0f}  {_describe(unit)}"
        )
    lines += ["", f"with prefill, tokens/s over all {question.cards} cards:"]
    lines += [f"  {value * question.cards:8.0f}  {name}" for name, value in answer.alternatives]
    used = answer.deployment.cards
    lines.append(f"best: {answer.output_per_card:.0f} output tokens/s a card on {used} cards")
    return "\n".join(lines)


def _too_small(question: Question, hardware: Hardware, shape: ModelShape) -> str:
    """Why nothing fits, with the smallest number of cards on which something would."""
    cards = question.cards
    for _ in range(12):
        cards *= 2
        for place in candidates.topologies(hardware, cards):
            for role in candidates.roles(shape, Phase.DECODE, place):
                model = _model(question, hardware, role, 0)
                if model.most_requests(role, model.memory(role)) >= 1:
                    needed = place.nodes * place.cards_per_node
                    return (
                        f"{question.model} in {question.precision.weights} does not fit into "
                        f"{question.cards} {question.hardware} cards; a decode instance alone "
                        f"needs {needed}: give {2 * needed} or more, or narrower weights"
                    )
    return f"{question.model} does not fit into any number of {question.hardware} cards"
