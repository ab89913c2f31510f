"""A measured machine: its figures as text, as JSON, and as hardware for ``planner predict``."""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import yaml

from sglang_ascend.comm.hardware import load_hardware
from sglang_ascend.errors import ConfigError
from sglang_ascend.planner.calibration import probes, rates
from sglang_ascend.planner.calibration.host import ALONE, TOGETHER, Host, solve
from sglang_ascend.planner.calibration.rates import Rates
from sglang_ascend.plugin import host_settings

#: Longest measurement of the kernels; a quiet machine with two cores takes a tenth of it.
_TIMEOUT_S = 300
_LARGE = rates.SET_BYTES[-1]


@dataclass(frozen=True)
class Machine:
    """Kernels of the reference device on one machine, and its host by kind of model."""

    rates: Rates
    host: Mapping[str, Host]


def measure(formats: Iterable[str]) -> Machine:
    """Kernels, then the host: under two minutes on two cores.

    Args:
        formats: of products, some of ``rates.FORMATS``.

    Raises:
        ConfigError: a measurement failed.
    """
    found = measure_rates(formats)
    return Machine(found, solve(probes.times(), found))


def measure_rates(formats: Iterable[str] = ("float32",)) -> Rates:
    """The kernels, in a process with the environment of a server's.

    Raises:
        ConfigError: it failed.
    """
    module = "sglang_ascend.planner.calibration.kernels"
    wanted = sorted({"float32", *formats})
    env = dict(os.environ)
    host_settings.publish(env)
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, *wanted],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=_TIMEOUT_S,
            env=env,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"calibrate: the kernels could not be timed: {error}") from error
    return Rates(json.loads(done.stdout))


def median(machines: Sequence[Machine]) -> Machine:
    """Figure by figure."""
    names = machines[0].rates.figures
    middle = {n: statistics.median(one.rates.figures[n] for one in machines) for n in names}
    host = {}
    for kind in machines[0].host:
        every = [dataclasses.astuple(one.host[kind]) for one in machines]
        pairs = [tuple(map(statistics.median, zip(*pair))) for pair in zip(*every)]
        host[kind] = Host(*pairs)
    return Machine(Rates(middle), host)


def hardware_yaml(measured: Rates) -> str:
    """The kernels' rates as a file for ``configs/hardware``."""
    base = load_hardware("reference_cpu").constants
    constants = {
        key: {"value": float(f"{value:.4g}"), "unit": base[key].unit, "source": "measured"}
        for key, value in _values(measured).items()
    }
    return yaml.safe_dump({"base": "reference_cpu", "constants": constants}, sort_keys=False)


def kernels_text(measured: Rates) -> str:
    """Some of the kernels' figures in a line."""
    values = _values(measured)
    return (
        f"kernels: float32 products {values['compute.fp32']:.0f} GFLOPS, memory "
        f"{values['memory.bandwidth']:.1f} GB/s, a call {values['compute.fixed_matmul']:.1f} us, "
        f"loopback {values['link.intra_node.bandwidth']:.2f} GB/s"
    )


def host_text(measured: Mapping[str, Host]) -> str:
    """Some of the host's figures, a line for each kind of model."""
    lines = []
    for kind, own in measured.items():
        step, layer = (
            " and ".join(f"{seconds * 1e3:.1f}" for seconds in pair)
            for pair in (own.step_s, own.decode_layer_s)
        )
        lines.append(
            f"host, {kind}: a request {own.arrival_s[0] * 1e3:.1f} ms; a decode step {step} ms at "
            f"{ALONE} and {TOGETHER} requests, each layer {layer} ms more"
        )
    return "\n".join(lines)


def _values(measured: Rates) -> dict[str, float]:
    """In the units of the reference device's file."""
    figures, side = measured.figures, rates.SIDES[-1]
    many, one = rates.ROWS[-1], rates.ROWS[0]
    product = figures[rates.product("float32", _LARGE, many, side)]
    step = figures[rates.product("float32", _LARGE, one, side)]
    loopback = 1e-9 / figures["loopback/byte"]
    return {
        "compute.fp32": 2e-9 * many * side**2 / product,
        "compute.efficiency": 1.0,
        "compute.fixed_matmul": figures["call/product"] * 1e6,
        "compute.fixed_vector": figures["call/vector"] * 1e6,
        "memory.bandwidth": 4e-9 * side**2 / step,
        "memory.efficiency": 1.0,
        "link.intra_node.bandwidth": loopback,
        "link.intra_node.latency": figures["loopback/latency"] * 1e6,
        "transfer.bandwidth": loopback,
    }
