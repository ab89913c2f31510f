"""What each optimisation brings according to the model, against what its report says.

Every row switches one feature of a deployment; nothing here is a table of gains.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sglang_ascend.comm.topology import LinkClass, Topology
from sglang_ascend.deploy import deployment_file
from sglang_ascend.deploy.deployment import Deployment, Phase, Role, Speculation, Transport
from sglang_ascend.planner.predict import Model, predict
from sglang_ascend.planner.workload import Workload

_MLA = ("attention_down", "attention_in", "attention", "attention_out")


@dataclass(frozen=True)
class Ablation:
    """One claim.

    Attributes:
        model: what the model says, in the words and unit of ``reported``.
        why: of a disagreement, or how the model's figure comes about.
    """

    name: str
    reported: str
    model: str
    why: str


def run() -> tuple[Ablation, ...]:
    """All rows."""
    return tuple(
        Ablation(*row)
        for rows in (
            _flashcomm(),
            _conversion(),
            _a2_decode(),
            _placement(),
            _transports(),
            _cloudmatrix(),
        )
        for row in rows
    )


def changed(deployment: Deployment, **features: Any) -> Deployment:
    """The deployment with other features in all roles."""
    roles = tuple(
        dataclasses.replace(role, features=dataclasses.replace(role.features, **features))
        for role in deployment.roles
    )
    return dataclasses.replace(deployment, roles=roles)


def _prefill_s(deployment: Deployment, prompt_tokens: int) -> float:
    model = Model(deployment, Workload(input_tokens=prompt_tokens))
    role = deployment.roles[0]
    return model.prefill_step(role, model.prompts(role)).seconds


def _flashcomm() -> Iterator[tuple[str, str, str, str]]:
    before = deployment_file.read("a2_prefill_16_allreduce")
    after = deployment_file.read("a2_prefill_16_flashcomm")
    published = {1024: 942 / 691, 2048: 951 / 699, 4096: 1003 / 753, 8192: 1108 / 849}
    gains = {n: _prefill_s(before, n) / _prefill_s(after, n) for n in published}
    yield (
        "FlashComm, prefill on 16 A2 cards (1K, 2K, 4K, 8K prompts)",
        ", ".join(f"{gain - 1:+.0%}" for gain in published.values()),
        ", ".join(f"{gain - 1:+.0%}" for gain in gains.values()),
        "before is predicted a little too slow and after a little too fast; the ratio adds the two",
    )
    moved = [_network_bytes(deployment) for deployment in (before, after)]
    yield (
        "FlashComm, bytes on the wire",
        "-25 to -35 %",
        f"{moved[1] / moved[0] - 1:+.0%}",
        "two all-reduces a layer become two reduce-scatters, a gather of latents and one of INT8",
    )


def _layer(deployment: Deployment, role: Role, requests: float | None = None, context=2048.0):
    model = Model(deployment, Workload(kv_tokens=context))
    if role.phase is Phase.PREFILL:
        return model.prefill_step(role, model.prompts(role)).layers["moe"][0]
    return model.decode_step(role, requests).layers["moe"][0]


def _network_bytes(deployment: Deployment) -> int:
    priced = _layer(deployment, deployment.roles[0])
    return sum(sum(links.values()) for links in priced.bytes_by_link.values())


def _conversion() -> Iterator[tuple[str, str, str, str]]:
    plain = deployment_file.read("a2_prefill_16_flashcomm")
    converted = deployment_file.read("a2_prefill_16")
    in_node = [
        dataclasses.replace(d.roles[0], topology=Topology(1, 8), attention_tp=8)
        for d in (plain, converted)
    ]
    names = ("attention_reduce_scatter", "attention_all_to_all")
    sent = [
        _layer(d, role).bytes_by_link[name][LinkClass.INTRA_NODE]
        for d, role, name in zip((plain, converted), in_node, names)
    ]
    yield (
        "TP to DP within a layer: bytes in a node after attention (TP 8)",
        "-71 %",
        f"{sent[1] / sent[0] - 1:+.1%}",
        "heads x value size / (hidden x TP) = 16384 / 57344 of the reduce-scatter",
    )
    gain = _prefill_s(plain, 2048) / _prefill_s(converted, 2048)
    yield (
        "TP to DP within a layer: prefill of 8 x 2K on 16 cards",
        f"+10 % (699 to 631 ms is +{699 / 631 - 1:.0%})",
        f"{gain - 1:+.0%}",
        "the reduce-scatter over two servers shrinks to an all-to-all",
    )


def _a2_decode() -> Iterator[tuple[str, str, str, str]]:
    full = deployment_file.read("a2_decode_32")
    work = Workload(input_tokens=2048, output_tokens=2048, tpot_ms=100)

    def output(deployment: Deployment, workload: Workload = work) -> float:
        return predict(deployment, workload).roles[Phase.DECODE].tokens_per_s_card

    own = output(full)
    yield (
        "gate, shared expert and exchange on three streams, decode",
        "+15 % (FlashComm3 on its own: +25 to 30 %)",
        f"{own / output(changed(full, multi_stream=False)) - 1:+.0%}",
        "gate and shared expert are short beside the gather on A2 (about 70 of 450 us), and only "
        "they can hide behind it; the report's figure also counts pipelining in the collectives, "
        "which the model has in both",
    )
    role = full.roles[0]
    without = dataclasses.replace(role, features=dataclasses.replace(role.features, prefetch=False))
    times = [_layer(full, r, 72.0, 3072.0) for r in (without, role)]
    mla = [sum(time.seconds[name] for name in _MLA) for time in times]
    yield (
        "weights to L2 during the reduce-scatter: MLA",
        "+10 %",
        f"{mla[0] / mla[1] - 1:+.0%}",
        "half of L2 holds the projections' weights; attention itself reads the cache as before",
    )
    drafts = dataclasses.replace(full, speculation=Speculation())
    yield (
        "one draft a step at TPOT 100 ms",
        "70 % acceptance assumed by the report",
        f"{own / output(drafts) - 1:+.0%} tokens/s",
        "attention at this context is bound by compute and does twice the work; without drafts the "
        "limit admits more requests",
    )
    uneven = output(changed(full, balanced_experts=False))
    yield (
        "experts placed by load",
        "about +10 % (OmniPlacement)",
        f"{own / uneven - 1:+.0%}",
        "no confirmation: the skew of unplaced experts was chosen by this figure",
    )


def _placement() -> Iterator[tuple[str, str, str, str]]:
    decode, prefill = (deployment_file.read(f"h100_{name}") for name in ("decode_72", "prefill_32"))
    steps = [_step_s(changed(decode, balanced_experts=b), 256, 2000) for b in (False, True)]
    batches = [_prefill_s(changed(prefill, balanced_experts=b), 4096) for b in (False, True)]
    yield (
        "experts placed by load on 96 H100: decode, prefill",
        "2.54x, 1.49x (SGLang with EPLB)",
        f"{steps[0] / steps[1]:.2f}x, {batches[0] / batches[1]:.2f}x",
        "the skew before placement is not published; the model has what OmniPlacement implies",
    )


def _transports() -> Iterator[tuple[str, str, str, str]]:
    for name, cards, report, requests in (
        ("a2_decode_32", 32, "all-gather is faster", 72.0),
        ("cm384_decode_144", 144, "dispatch is used", 48.0),
    ):
        deployment = changed(deployment_file.read(name), micro_batches=1)
        seconds = {}
        for transport in Transport:
            role = dataclasses.replace(deployment.roles[0], transport=transport)
            seconds[transport] = _layer(deployment, role, requests, 3072.0).network_s
        best = min(seconds, key=seconds.__getitem__)
        yield (
            f"all-gather or dispatch at {cards} cards, {requests:g} requests a rank",
            report,
            f"{best}: {seconds[Transport.ALLGATHER] * 1e6:.0f} against "
            f"{seconds[Transport.DISPATCH] * 1e6:.0f} us a layer",
            "bytes between nodes grow with nodes - 1 for all-gather, with top-k for dispatch",
        )


def _cloudmatrix() -> Iterator[tuple[str, str, str, str]]:
    decode = deployment_file.read("cm384_decode_160")
    role = decode.roles[0]
    plain = dataclasses.replace(decode, speculation=Speculation())
    layers = [_layer(d, role, 48.0, 4096.0).total_s * 1e6 for d in (plain, decode)]
    yield (
        "CloudMatrix decode layer without and with a draft, batch 96",
        "874 and 1260 us (+44 %)",
        f"{layers[0]:.0f} and {layers[1]:.0f} us ({layers[1] / layers[0] - 1:+.0%})",
        "attention work doubles, weights are read once",
    )
    gains = [
        1.7 * _step_s(plain, requests) / _step_s(decode, requests) - 1
        for requests in (4, 16, 32, 48, 64)
    ]
    yield (
        "one draft on CloudMatrix, batch 8 to 128",
        "+6 to +49 %",
        f"{min(gains):+.0%} to {max(gains):+.0%}",
        "smaller batches gain more, as reported",
    )
    single = changed(decode, micro_batches=1)
    gains = [_step_s(single, n / 2) / _step_s(decode, n / 2) - 1 for n in (64, 96, 128)]
    yield (
        "two micro-batches in decode, batch 64, 96, 128",
        "+5.8, +9.4, +6.9 %",
        ", ".join(f"{gain:+.1%}" for gain in gains),
        "kernels of one batch beside the network of the other, neither slowed down; yet the vector "
        "cores that do the exchange are those that attention's softmax needs",
    )
    prefill = deployment_file.read("cm384_prefill_16")
    gain = _prefill_s(changed(prefill, micro_batches=1), 4096) / _prefill_s(prefill, 4096)
    yield (
        "two micro-batches in prefill, 4K",
        "+23 to +31 %",
        f"{gain - 1:+.0%}",
        "the same: network is hidden at no cost to the kernels",
    )
    hits = []
    for share in (0.0, 0.5, 0.9):
        model = Model(prefill, Workload(input_tokens=4096, prefix_hit=share))
        prompts = model.prompts(prefill.roles[0])
        hits.append(prompts / model.prefill_step(prefill.roles[0], prompts).seconds)
    yield (
        "half and nine tenths of a 4K prompt in the context cache: prefill",
        "1.42x, 2.28x",
        f"{hits[1] / hits[0]:.2f}x, {hits[2] / hits[0]:.2f}x",
        "the model has the cache at hand at once; the report's system fetches it from a pool, and "
        "what else bounds it there is not published",
    )


def _step_s(deployment: Deployment, requests: float, context: float = 4096) -> float:
    model = Model(deployment, Workload(kv_tokens=context))
    return model.decode_step(deployment.roles[0], requests).seconds
