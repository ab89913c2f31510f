"""What the reference device will serve on this machine: kernels of each step, and the host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open

from sglang_ascend.deploy import deployment_shape
from sglang_ascend.deploy.deployment_shape import ModelShape
from sglang_ascend.errors import ConfigError
from sglang_ascend.models import catalog
from sglang_ascend.planner.calibration import host, rates
from sglang_ascend.planner.calibration.host import Host, between
from sglang_ascend.planner.calibration.machine import Machine
from sglang_ascend.planner.calibration.probe_models import DENSE, EXPERTS
from sglang_ascend.planner.calibration.steps import FLOAT32, Steps

#: Rows of each weight whose values say what format they came from.
_LOOKED_AT = 64


@dataclass(frozen=True)
class Load:
    """Requests that come together: how many, and tokens in and out of each."""

    requests: int = 1
    input_tokens: int = host.INPUT
    output_tokens: int = host.OUTPUT


@dataclass(frozen=True)
class Served:
    """A prediction: seconds to the first token and per token after it (medians), tokens/s."""

    ttft_s: float
    tpot_s: float
    tokens_per_s: float


@dataclass(frozen=True)
class Predictor:
    """One model in one number format on one machine."""

    steps: Steps
    host: Host

    def serve(self, load: Load) -> Served:
        """TTFT, TPOT and throughput of a server that has nothing else to do.

        See ``host.LATER`` for the order of prefill. No request decodes before all are prefilled.
        """
        tpot = self.decode_s(load)
        ttft = between(self.host.arrival_s, 1) + self.prefill_s(load, 1)
        if load.requests > 1:
            arrived = between(self.host.arrival_s, load.requests)
            ttft = max(arrived, ttft) + self.prefill_s(load, load.requests - 1)
        whole = ttft + (load.output_tokens - 1) * tpot
        return Served(ttft, tpot, load.requests * load.output_tokens / whole)

    def decode_s(self, load: Load) -> float:
        """Seconds of a decode step of all requests, half way through their output."""
        kernels = self.steps.decode_s(load.requests, load.input_tokens + load.output_tokens / 2)
        python = self.steps.shape.layers * between(self.host.decode_layer_s, load.requests)
        return kernels + python + between(self.host.step_s, load.requests)

    def prefill_s(self, load: Load, prompts: int) -> float:
        """Seconds of that many of the prompts in one batch."""
        # It grows with rows, and the second of the pair is that of host.LATER prompts.
        share = (prompts * load.input_tokens / host.INPUT - 1) / (host.LATER - 1)
        at = host.ALONE + share * (host.TOGETHER - host.ALONE)
        python = self.steps.shape.layers * between(self.host.prefill_layer_s, at)
        return self.steps.prefill_s(prompts, load.input_tokens) + python


@dataclass(frozen=True)
class Question:
    """A model that is to be predicted.

    Attributes:
        number_format: a key of ``steps.PRECISIONS``.
        float_format: of its float products, one of ``rates.FORMATS`` or ``rates.OF_16_BITS``.
    """

    shape: ModelShape
    number_format: str
    float_format: str

    @property
    def formats(self) -> set[str]:
        """Formats of products that have to be measured for it."""
        quantised = {"int8"} if self.number_format != FLOAT32 else set()
        return {*rates.measured_for(self.float_format)} | quantised

    def on(self, measured: Machine) -> Predictor:
        """The prediction on a measured machine."""
        steps = Steps(measured.rates, self.shape, self.number_format, self.float_format)
        return Predictor(steps, measured.host[EXPERTS if self.shape.experts else DENSE])


def question(model: str, number_format: str) -> Question:
    """Ask about a model as ``--model-path`` takes it.

    Raises:
        ConfigError: there is no such model, or it is of another kind than the probes.
    """
    folder = catalog.resolve(model)
    shape = deployment_shape.load(str(folder))
    if shape.is_mla != bool(shape.experts):
        has = "experts but no latent attention" if shape.experts else "latent attention, no experts"
        raise ConfigError(
            f"{model} has {has}; calibrate measures dense models with grouped-query attention and "
            "models with experts and latent attention: choose one of these, such as "
            f"{' or '.join(catalog.EMBEDDED)}"
        )
    return Question(shape, number_format, _float_format(folder))


def _float_format(folder: Path) -> str:
    """Which float32 the weights of layers are, judged by some rows of each."""
    found = rates.OF_BF16
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                rows = tensors.get_slice(name)
                if len(rows.get_shape()) == 2 and "embed" not in name and "lm_head" not in name:
                    values = rows[:_LOOKED_AT].float().view(torch.int32)
                    if (values & 0xFF).any():
                        return FLOAT32
                    if (values & 0xFFFF).any():
                        found = rates.OF_16_BITS
    return found
