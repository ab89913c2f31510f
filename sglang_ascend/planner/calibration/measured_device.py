"""The planner's device with measured times in the place of a data sheet's roofline."""

from __future__ import annotations

from dataclasses import dataclass, field

from sglang_ascend.planner.calibration.rates import Rates
from sglang_ascend.planner.device import NOTHING, Device, Work


@dataclass(frozen=True)
class MeasuredDevice(Device):
    """All cores of the reference device during one kind of step.

    Attributes:
        rates: what was measured.
        float_format: of the float products; those in INT8 have a format of their own.
        set_bytes: weights that a step reads: what decides where the caches have them.
        mla: kind of attention.
        decode: attention over the cache, else of whole prompts.
        requests: of the step, which share the cores in attention.
        replayed: calls cost what a recording's do; else nothing here, since Python's time for a
            layer, which holds them, is added by the caller.
    """

    rates: Rates = field(kw_only=True)
    float_format: str = field(kw_only=True)
    set_bytes: float = field(kw_only=True)
    mla: bool = field(kw_only=True)
    decode: bool = field(kw_only=True)
    requests: float = field(kw_only=True)
    replayed: bool = field(kw_only=True)

    def matmul(
        self, rows: float, inner: int, columns: float, dtype: str, weight_bytes: float,
        row_bytes: float = 0.0, groups: float = 1.0,
    ) -> Work:  # fmt: skip
        """As of ``Device``; groups run one after the other."""
        if rows <= 0:
            return NOTHING
        form = "int8" if dtype == "int8" else self.float_format
        call = self.rates.figures["call/product"]
        one = self.rates.product_s(form, rows / groups, inner * columns, self.set_bytes) - call
        fixed = call if self.replayed else 0.0
        nbytes = weight_bytes + rows * row_bytes
        seconds = groups * one + fixed
        return Work(seconds, 2.0 * rows * inner * columns, nbytes, "compute", fixed)

    def output_layer(
        self, rows: float, inner: int, columns: float, dtype: str, weight_bytes: float,
        row_bytes: float,
    ) -> Work:  # fmt: skip
        """As of ``Device``, for greedy requests: screened, and the largest chosen."""
        if rows <= 0:
            return NOTHING
        seconds = self.rates.output_layer_s(rows) * inner * columns
        flops = 2.0 * rows * inner * columns
        return Work(seconds, flops, weight_bytes + rows * row_bytes, "memory", 0.0)

    def vector(self, nbytes: float, kernels: int = 1) -> Work:
        """As of ``Device``."""
        fixed = kernels * self.rates.figures["call/vector"] if self.replayed else 0.0
        return Work(nbytes * self.rates.figures["vector"] + fixed, 0.0, nbytes, "memory", fixed)

    def attention(self, flops: float, nbytes: float, dtype: str, efficiency: float) -> Work:
        """As of ``Device``; the efficiency is in the measured rate."""
        one = self.rates.attention_s("mla" if self.mla else "gqa", self.decode, self.requests)
        fixed = self.rates.figures["call/vector"] if self.replayed else 0.0
        return Work(flops / 2 * one + fixed, flops, nbytes, "compute", fixed)
