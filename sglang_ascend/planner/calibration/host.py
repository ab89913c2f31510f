"""What serving costs beside the kernels: few figures, from the times of the probes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sglang_ascend.deploy import deployment_shape
from sglang_ascend.planner.calibration import probe_models
from sglang_ascend.planner.calibration.rates import Rates
from sglang_ascend.planner.calibration.steps import Steps

#: What the probes are asked for: requests at the same time, tokens in and out.
ALONE, TOGETHER = 1, 16
INPUT, OUTPUT = 128, 64
#: Of requests that come together, the first one to arrive is prefilled alone; all others have come
#: by the time that it is done, and are one batch.
LATER = TOGETHER - 1

Pair = tuple[float, float]
#: TTFT and TPOT in seconds, by kind and layers of a probe and requests at the same time.
Times = Mapping[tuple[str, int], Mapping[int, Pair]]


@dataclass(frozen=True)
class Host:
    """Seconds that no kernel takes, for one kind of model; at ALONE and at TOGETHER requests.

    Attributes:
        step_s: scheduler, sampling and streaming of one decode step, and Python outside of layers.
        arrival_s: from sending until the last request is with the scheduler, and from the first
            token to the client.
        decode_layer_s: of one layer in decode: Python, unless the step is replayed.
        prefill_layer_s: of one layer in prefill: Python, operators that the layer graph does not
            price, and what kernels take more in a server than alone.
    """

    step_s: Pair
    arrival_s: Pair
    decode_layer_s: Pair
    prefill_layer_s: Pair


def between(pair: Pair, requests: float) -> float:
    """A figure at another number of requests: in proportion with those beyond the first."""
    share = (requests - ALONE) / (TOGETHER - ALONE)
    return max(0.0, pair[0] + share * (pair[1] - pair[0]))


def solve(times: Times, measured: Rates) -> dict[str, Host]:
    """The host's figures by kind: what the probes took beyond their own kernels.

    What a deep probe takes more is its further layers'. With one request, TTFT is arrival and one
    batch. With several, the last request arrives while the first is prefilled, and the other batch
    follows.
    """
    return {kind: _solve(kind, times, measured) for kind in probe_models.LAYERS}


def _solve(kind: str, times: Times, measured: Rates) -> Host:
    layers = probe_models.LAYERS[kind]
    prefill: list[Pair] = []
    decode: list[Pair] = []
    for at, prompts in ((ALONE, 1), (TOGETHER, LATER)):
        ttft, tpot = [], []
        for count in layers:
            shape = deployment_shape.from_config(kind, probe_models.config(kind, count))
            steps = Steps(measured, shape)
            first, each = times[kind, count][at]
            ttft.append(first - steps.prefill_s(prompts, INPUT))
            tpot.append(each - steps.decode_s(at, INPUT + OUTPUT / 2))
        prefill.append(_line(layers, ttft))
        decode.append(_line(layers, tpot))
    (arrival, prefill_layer), (step, decode_layer) = (tuple(zip(*p)) for p in (prefill, decode))
    return Host(step, arrival, decode_layer, prefill_layer)


def _line(layers: tuple[int, int], seconds: list[float]) -> Pair:
    """What belongs to no layer, and what belongs to each; neither is negative."""
    (few, many), (short, long) = layers, seconds
    each = max(0.0, (long - short) / (many - few))
    return max(0.0, short - few * each), each
