"""Kernels of one step of the reference device: the planner's layer graph on measured times."""

from __future__ import annotations

from dataclasses import dataclass

from sglang_ascend.comm.hardware import load_hardware
from sglang_ascend.comm.topology import Topology
from sglang_ascend.deploy.deployment import Phase, Precision, Role, Speculation
from sglang_ascend.deploy.deployment_memory import ELEMENT_BYTES
from sglang_ascend.deploy.deployment_shape import ModelShape
from sglang_ascend.planner import constants, step
from sglang_ascend.planner.calibration.measured_device import MeasuredDevice
from sglang_ascend.planner.calibration.rates import Rates

FLOAT32 = "float32"
#: As benchmark.serving names ours -> weights, activations and cache as the planner names them.
PRECISIONS = {
    FLOAT32: Precision("fp32", "fp32", "fp32"),
    "ascend_w8a8": Precision("int8", "int8", "fp32"),
}
_ROLE = Role(Phase.SERVE, Topology(1, 1))


@dataclass(frozen=True)
class Steps:
    """Kernel time of a model on one rank, without anything that the host does.

    Attributes:
        number_format: a key of PRECISIONS.
        float_format: of the products that are not in INT8, one of ``rates.FORMATS``.
    """

    rates: Rates
    shape: ModelShape
    number_format: str = FLOAT32
    float_format: str = "float32"

    @property
    def replayed(self) -> bool:
        """Whether decode steps are replayed: experts' row counts are read by Python."""
        return not self.shape.experts

    def decode_s(self, requests: float, context: float) -> float:
        """Seconds of a token for each of the requests, with ``context`` tokens in the cache."""
        device, precision = self._device(True, requests), PRECISIONS[self.number_format]
        return step.decode(
            device, self.shape, precision, Speculation(), _ROLE, requests, context
        ).seconds

    def prefill_s(self, prompts: float, tokens: float) -> float:
        """Seconds of that many prompts of ``tokens`` each, in one batch."""
        device, precision = self._device(False, prompts), PRECISIONS[self.number_format]
        return step.prefill(device, self.shape, precision, _ROLE, prompts * tokens, tokens).seconds

    @property
    def _set_bytes(self) -> float:
        """Of the weights that a step reads: layers, and the INT8 copy of the output layer."""
        shape, precision = self.shape, PRECISIONS[self.number_format]
        head = shape.vocab * shape.hidden
        layers = shape.parameters - head * (1 if shape.tied_embeddings else 2)
        return layers * ELEMENT_BYTES[precision.weights] + head * ELEMENT_BYTES["int8"]

    def _device(self, decode: bool, requests: float) -> MeasuredDevice:
        return MeasuredDevice(
            load_hardware("reference_cpu"),
            constants.default().changed({"host_step": 0.0}),
            rates=self.rates,
            float_format=self.float_format,
            set_bytes=self._set_bytes,
            mla=self.shape.is_mla,
            decode=decode,
            requests=requests,
            replayed=decode and self.replayed,
        )
