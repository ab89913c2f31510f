"""What a deployment is asked to do: lengths, reuse, arrival rate and the limits on latency."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sglang_ascend.deploy import deployment_file
from sglang_ascend.deploy.architectures import nearest
from sglang_ascend.errors import ConfigError


@dataclass(frozen=True)
class Workload:
    """Requests, all alike.

    Attributes:
        input_tokens, output_tokens: mean lengths of a request.
        prefix_hit: share of the input whose keys and values the prefill cache holds.
        kv_tokens: mean tokens in the cache of a request in decode; None for the input and half of
            the output.
        tpot_ms: limit on the time per output token; None for the deployment's own batch.
        arrival_per_s: requests a second (Poisson); None for as many as can be served.
    """

    name: str = "workload"
    input_tokens: int = 2048
    output_tokens: int = 1024
    prefix_hit: float = 0.0
    kv_tokens: float | None = None
    tpot_ms: float | None = None
    arrival_per_s: float | None = None

    def __post_init__(self) -> None:
        if self.input_tokens < 1 or self.output_tokens < 1:
            raise ConfigError(
                f"workload {self.name}: {self.input_tokens} input and {self.output_tokens} output "
                "tokens; give 1 or more of each"
            )
        if not 0 <= self.prefix_hit < 1:
            raise ConfigError(
                f"workload {self.name}: prefix_hit {self.prefix_hit:g}; give a share from 0 to "
                "below 1"
            )
        for key in ("kv_tokens", "tpot_ms", "arrival_per_s"):
            if (value := getattr(self, key)) is not None and value <= 0:
                raise ConfigError(f"workload {self.name}: {key} {value:g}; give more than 0")

    @property
    def new_tokens(self) -> float:
        """Of a prompt that prefill has to compute."""
        return self.input_tokens * (1 - self.prefix_hit)

    @property
    def mean_context(self) -> float:
        """Tokens in the cache of a request in decode, on average over its output."""
        return self.kv_tokens or self.input_tokens + self.output_tokens / 2


def folder() -> Path:
    """Of the workloads that come with the package."""
    return deployment_file.folder().with_name("workloads")


def read(name_or_path: str | Path) -> Workload:
    """Read a workload by the name of one in ``configs/workloads``, or by its path.

    Raises:
        ConfigError: no such file, or a key that is unknown, of a wrong type or out of range.
    """
    path = folder() / f"{name_or_path}.yaml"
    if not path.is_file():
        path = Path(name_or_path)
    if not path.is_file():
        known = sorted(p.stem for p in folder().glob("*.yaml"))
        raise ConfigError(
            f"workload {str(name_or_path)!r} is neither a file nor a known name; nearest: "
            f"{', '.join(nearest(str(name_or_path), known))}"
        )
    return deployment_file.build(Workload, deployment_file.read_yaml(path) or {}, str(path))
