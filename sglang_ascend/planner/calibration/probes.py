"""Servers of the probe models, measured with the client that measures any server."""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tqdm import tqdm

from sglang_ascend.errors import ConfigError
from sglang_ascend.planner.calibration import probe_models
from sglang_ascend.planner.calibration.closed_loop import SGLANG, LoadError, measure, prompts
from sglang_ascend.planner.calibration.host import ALONE, INPUT, OUTPUT, TOGETHER, Times
from sglang_ascend.planner.calibration.ports import free_port
from sglang_ascend.planner.calibration.server_process import Launch, ServerFailed, ServerProcess

#: Requests of a measurement: alone, each is answered in a tenth of a second.
_REQUESTS = {ALONE: 4, TOGETHER: 16}
_WARM_UP = 4
_ROUNDS = 3


def times() -> Times:
    """Start the probes, measure them in turns, end them; medians over all their requests.

    Even idle servers look for work some times a second: they end before anything else is measured.

    Raises:
        ConfigError: a server did not start, or stopped answering.
    """
    probes = [(kind, n) for kind, layers in probe_models.LAYERS.items() for n in layers]
    steps = len(probes) * (1 + _ROUNDS * len(_REQUESTS))
    with ExitStack() as stack, tqdm(total=steps, desc="host", unit="step") as bar:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="probes_")))
        with ThreadPoolExecutor() as pool:
            started = {
                probe: pool.submit(stack.enter_context, _server(*probe, folder)) for probe in probes
            }
        try:
            servers = {}
            for probe, one in started.items():
                servers[probe] = one.result()
                bar.update()
            return _times(servers, bar)
        except (ServerFailed, LoadError) as error:
            raise ConfigError(f"calibrate: a probe model's server failed: {error}") from error


def _times(servers: Mapping[tuple[str, int], ServerProcess], bar: tqdm) -> Times:
    found: dict[tuple[str, int], dict[int, list]] = {
        probe: {at: [] for at in _REQUESTS} for probe in servers
    }
    turns = itertools.product(range(_ROUNDS), servers.items(), _REQUESTS)
    for seed, (_, (probe, server), at) in enumerate(turns):
        found[probe][at] += _answers(server.url, at, seed)
        bar.update()
    return {
        probe: {
            at: tuple(statistics.median(column) for column in zip(*answers))
            for at, answers in by_requests.items()
        }
        for probe, by_requests in found.items()
    }


def _answers(url: str, at: int, seed: int) -> list[tuple[float, float]]:
    """TTFT and TPOT of each request, after a warm-up with other prompts."""
    drawn = prompts(probe_models.VOCABULARY, at + _REQUESTS[at], INPUT, seed)
    measure(url, SGLANG, drawn[:at], _WARM_UP, at)
    cell = measure(url, SGLANG, drawn[at:], OUTPUT, at)
    return [(one.first_s, one.tpot_s) for one in cell.answers if one.tpot_s is not None]


def _server(kind: str, layers: int, folder: Path) -> ServerProcess:
    port, name = free_port(), f"{kind}-{layers}"
    command = [sys.executable, "-m", "sglang_ascend.launch_server", "--device", "reference"]
    command += ["--model-path", str(probe_models.write(kind, layers, folder / name))]
    command += ["--load-format", "dummy", "--port", str(port)]
    command += ["--max-total-tokens", str(4 * TOGETHER * (INPUT + OUTPUT))]
    return ServerProcess(Launch(command), port, SGLANG, folder / f"{name}.log")
