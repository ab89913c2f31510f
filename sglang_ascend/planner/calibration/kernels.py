"""Time the kernels of the reference device: ``python -m`` this file, with formats of products.

Prints the figures of ``rates.Rates`` as one line of JSON. Everything goes through the entry points
that serving uses. It runs in a process of its own, with the environment that the launcher gives a
server, and takes its threads and its memory with it.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import statistics
import sys
import types
from collections.abc import Callable, Sequence

import torch
from tqdm import tqdm

from sglang_ascend.native import rows as native_rows
from sglang_ascend.native import screening
from sglang_ascend.native.recording import Recording
from sglang_ascend.ops.add_rms_norm import add_rms_norm
from sglang_ascend.ops.dynamic_quant import dynamic_quant
from sglang_ascend.ops.quant_matmul import quant_matmul
from sglang_ascend.ops.rms_norm import rms_norm
from sglang_ascend.planner.calibration import attention_kernels, loopback, rates
from sglang_ascend.planner.calibration.timing import per_call
from sglang_ascend.plugin import float_linear, host_settings
from sglang_ascend.quantization.weights import prepare_weight

_REPEATS = 5
#: Rows up to which a step is replayed, that is, the products of a decode step.
_REPLAYED_ROWS = 16
#: Calls in a recording: enough to hide the clock, few enough to make at once.
_RECORDED = 32
#: Layers that take turns, at most: of small ones a cache holds more than a model has.
_MOST_LAYERS = 512
_VECTOR_SHAPE, _VECTOR_PAIRS = (2048, 768), 16
_HEAD_SHAPE = (32768, 576)
Timed = Callable[[], float]


def figures(formats: Sequence[str]) -> dict[str, float]:
    """Medians of repeats. Between two repeats of a figure, all others of its group have theirs.

    Other load comes in bursts of a second or so, and would otherwise hit all repeats of some.

    Args:
        formats: of products, some of ``rates.FORMATS``.
    """
    groups = [functools.partial(_products, form) for form in formats] + [_others]
    found: dict[str, float] = {}
    with torch.inference_mode(), tqdm(total=len(groups) * _REPEATS, desc="kernels") as bar:
        for group in groups:
            runs, samples = group(), []
            for _ in range(_REPEATS):
                samples.append({name: run() for name, run in runs.items()})
                bar.update()
            found |= {name: statistics.median(one[name] for one in samples) for name in runs}
    return found


def _others() -> dict[str, Timed]:
    groups = _calls(), _vector(), _output_layer(), attention_kernels.timed(), loopback.timed()
    return {name: run for group in groups for name, run in group.items()}


def _products(form: str) -> dict[str, Timed]:
    found: dict[str, Timed] = {}
    for set_bytes, side in itertools.product(rates.SET_BYTES, rates.SIDES):
        found |= _products_of(form, set_bytes, side)
    return found


def _products_of(form: str, set_bytes: int, side: int) -> dict[str, Timed]:
    element = 1 if form == "int8" else 4
    count = min(_MOST_LAYERS, max(2, set_bytes // (element * side * side)))
    layers = [_layer(form, side) for _ in range(count)]
    for layer in layers:  # a weight may be packed when it is first used
        layer(torch.randn(1, side))
    return {
        rates.product(form, set_bytes, rows, side): _product(layers, torch.randn(rows, side))
        for rows in rates.ROWS
    }


def _layer(form: str, side: int) -> Callable[[torch.Tensor], torch.Tensor]:
    if form == "int8":
        values = torch.randint(-127, 128, (side, side), dtype=torch.int8)
        weight = prepare_weight(torch.nn.Parameter(values, requires_grad=False))
        scale = torch.ones(side)

        def int8(x: torch.Tensor) -> torch.Tensor:
            q, row_scale = dynamic_quant(x)
            return quant_matmul(q, row_scale, weight, scale, torch.float32)

        return int8
    layer = torch.nn.Linear(side, side, bias=False, device="meta")
    values = torch.randn(side, side)
    if form == rates.OF_BF16:
        values = values.bfloat16().float()
    layer.weight = torch.nn.Parameter(values, requires_grad=False)
    return lambda x: float_linear.apply(None, layer, x)


def _product(layers: list[Callable], x: torch.Tensor) -> Timed:
    """Layers take turns, so that weights come from where a model's would."""
    if x.shape[0] > _REPLAYED_ROWS:
        turns = itertools.cycle(layers)
        return lambda: per_call(lambda: next(turns)(x))
    parts = [layers[i : i + _RECORDED] for i in range(0, len(layers), _RECORDED)]
    replays = [_replay(lambda part=part: [layer(x) for layer in part]) for part in parts]
    turns = itertools.cycle(replays)
    share = len(layers) / len(parts)
    return lambda: per_call(lambda: next(turns)()) / share


def _replay(run: Callable[[], object]) -> Callable[[], object]:
    """The calls as a decode step replays them; ``run`` itself where they cannot be recorded."""
    recording = Recording()
    with recording:
        run()
    return run if recording.refused else functools.partial(_again, recording, run)


def _again(recording: Recording, run: Callable[[], object]) -> None:
    """Replay; ``run`` holds the inputs, of which a recording knows the addresses alone."""
    recording.replay()


def _calls() -> dict[str, Timed]:
    x = torch.randn(1, 16)
    small = [_layer("float32", 16) for _ in range(_RECORDED)]
    norm = torch.ones(16)
    runs = {
        "call/product": _replay(lambda: [layer(x) for layer in small]),
        "call/vector": _replay(lambda: [rms_norm(x, norm, 1e-6) for _ in range(_RECORDED)]),
    }
    return {name: lambda run=run: per_call(run) / _RECORDED for name, run in runs.items()}


def _vector() -> dict[str, Timed]:
    """Sum and norm over the rows of a prefill: two tensors read, two written.

    Between two norms of a layer, much larger tensors have passed through the caches: inputs take
    turns.
    """
    norm = torch.ones(_VECTOR_SHAPE[1])
    pairs = [(torch.randn(_VECTOR_SHAPE), torch.randn(_VECTOR_SHAPE)) for _ in range(_VECTOR_PAIRS)]
    nbytes = 4 * pairs[0][0].numel() * pairs[0][0].element_size()
    turns = itertools.cycle(pairs)
    return {"vector": lambda: per_call(lambda: add_rms_norm(*next(turns), norm, 1e-6)) / nbytes}


def _output_layer() -> dict[str, Timed]:
    """Greedy choices, as serving makes them; two heads take turns."""
    turns = itertools.cycle([_head(torch.randn(_HEAD_SHAPE)) for _ in range(2)])
    elements = math.prod(_HEAD_SHAPE)

    def timed(x: torch.Tensor) -> Timed:
        return lambda: per_call(lambda: next(turns)(x)) / elements

    return {f"output_layer/{n}": timed(torch.randn(n, _HEAD_SHAPE[1])) for n in rates.REQUESTS}


def _head(weight: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    head = screening.head_of(types.SimpleNamespace(), weight)
    if head is None:  # no native kernels
        return lambda x: float_linear.linear(x, weight).argmax(-1)
    return lambda x: native_rows.argmax(head.logits(x))


if __name__ == "__main__":
    host_settings.settle()  # as a server's scheduler
    print(json.dumps(figures(sys.argv[1:] or rates.FORMATS)))
