"""Servers of the probe models, measured with the client that measures any server."""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
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
_ROUNDS = 5


def times() -> Times:
    """Start, measure and end one probe after the other; medians over its requests.

    Never two at once: even an idle server looks for work some times a second, and four of them
    took a fifth of what the one that was measured could have had.

    Raises:
        ConfigError: a server did not start, or stopped answering.
    """
    probes = [(kind, n) for kind, layers in probe_models.LAYERS.items() for n in layers]
    found = {}
    with tempfile.TemporaryDirectory(prefix="probes_") as folder:
        for kind, layers in tqdm(probes, desc="host", unit="probe"):
            try:
                with _server(kind, layers, Path(folder)) as server:
                    found[kind, layers] = _times(server)
            except (ServerFailed, LoadError) as error:
                raise ConfigError(f"calibrate: a probe model's server failed: {error}") from error
    return found


def _times(server: ServerProcess) -> dict[int, tuple[float, float]]:
    answers: dict[int, list] = {at: [] for at in _REQUESTS}
    for seed, (_, at) in enumerate(itertools.product(range(_ROUNDS), _REQUESTS)):
        answers[at] += _answers(server.url, at, seed)
    return {
        at: tuple(statistics.median(column) for column in zip(*some))
        for at, some in answers.items()
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
