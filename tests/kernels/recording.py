"""The native backend, with a note of which configurations ran."""

from __future__ import annotations

from dataclasses import dataclass, field

from sglang_ascend.kernel_proof.native_run import run_native
from sglang_ascend.kernels.launching import Backend


@dataclass
class Recorder:
    """`backend` runs kernels natively; `ran` lists "kernel/configuration" in order."""

    target: str = "910B"
    ran: list[str] = field(default_factory=list)

    @property
    def backend(self) -> Backend:
        return Backend("cpu", self.target, self._run)

    def _run(self, spec, config, grid, arguments) -> None:
        self.ran.append(f"{spec.name}/{config.name}")
        run_native(spec, config, grid, arguments)
