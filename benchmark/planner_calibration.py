"""Does the planner's method hold on a machine that we have?

Measures this machine (``planner calibrate``), predicts TTFT, TPOT and throughput of the reference
device for the two embedded models, and measures them on a real server. The rates of the machine are
measured again between requests, so that other load hits both sides alike; medians count. One figure
is not predicted but taken over: the host's time for a step, from the smallest workload of the tiny
model. It is the same for all others.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import requests

from sglang_ascend.comm.topology import Topology
from sglang_ascend.deploy.deployment import Deployment, Phase, Precision, Role, Speculation
from sglang_ascend.planner import calibrate, constants
from sglang_ascend.planner.predict import Model
from sglang_ascend.planner.workload import Workload

MODELS = ("tiny-deepseek-v3", "smollm2-135m-instruct")
#: Input tokens, output tokens, requests at a time. The first is where the host's time comes from.
CELLS = ((64, 48, 1), (512, 32, 1), (64, 48, 4), (512, 32, 4))
START_TIMEOUT_S, REQUEST_TIMEOUT_S = 600, 300


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmark.planner_calibration",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Run it on a quiet machine: one server and this process share its cores. With other "
        "load on it, ratios still mean something, absolute times do not.",
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--port", type=int, default=31200, help="port of the server")
    parser.add_argument("--repeats", type=int, default=5, help="rounds over all cells")
    parser.add_argument("--log", type=Path, default=Path("planner_calibration.log"))
    parser.add_argument("--output", type=Path, help="write the figures here as JSON")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server ends with it
    rows, host_s = [], None
    for model in given.models:
        with _Server(model, given.port, given.log) as server:
            rates, times = _rounds(server, model, given.repeats)
        if host_s is None:
            device_s = _predicted(model, rates, CELLS[0], 0.0)["tpot_s"]
            host_s = max(0.0, times[CELLS[0]]["tpot_s"] - device_s)
        for cell in CELLS:
            predicted = _predicted(model, rates, cell, host_s)
            rows.append(
                {"model": model, "cell": cell, "measured": times[cell], "predicted": predicted}
            )
        if given.output:  # after each model: the second one takes long
            rate = dataclasses.asdict(rates)
            content = {"host_step_s": host_s, "rates": rate, "load": os.getloadavg(), "rows": rows}
            given.output.write_text(json.dumps(content, indent=1) + "\n")
    print(_table(rows, host_s))
    return 0


class _Server:
    """A server of the reference device in a process group of its own."""

    def __init__(self, model: str, port: int, log: Path):
        self.url = f"http://127.0.0.1:{port}"
        self._log = log
        self._command = [
            sys.executable,
            "-m",
            "sglang_ascend.launch_server",
            "--device",
            "reference",
        ]
        self._command += ["--model-path", model, "--port", str(port), "--disable-radix-cache"]
        # A scheduler that polls while idle would take a core from the measurements of the machine.
        self._command += ["--max-total-tokens", "16384", "--sleep-on-idle"]

    def __enter__(self) -> _Server:
        with self._log.open("w") as out:
            self._process = subprocess.Popen(
                self._command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            self._wait()
        except BaseException:  # an interrupt too must not leave the server behind
            self.__exit__()
            raise
        return self

    def _wait(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended early; see {self._log}")
            try:
                if requests.get(f"{self.url}/health_generate", timeout=20).status_code == 200:
                    return
            except requests.RequestException:
                pass
            time.sleep(0.5)
        raise RuntimeError(f"the server was not ready after {START_TIMEOUT_S} s; see {self._log}")

    def __exit__(self, *_) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()


def _rounds(server: _Server, model: str, repeats: int):
    """Machine rates and times of every cell, in turns; medians over the rounds."""
    vocabulary = Model(_deployment(model), Workload()).shape.vocab
    rates: list[calibrate.Measured] = []
    found: dict[tuple, list[dict[str, float]]] = {cell: [] for cell in CELLS}
    for repeat in range(repeats):
        rates.append(_measured())
        _cell(server, vocabulary, 64, 8, 1, seed=repeat)  # wakes the server up
        for cell in CELLS:
            found[cell].append(_cell(server, vocabulary, *cell, seed=repeat))
            done = repeat * len(CELLS) + CELLS.index(cell) + 1
            print(f"\r{model}: {done}/{repeats * len(CELLS)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    middle = calibrate.Measured(
        *(statistics.median(column) for column in zip(*map(dataclasses.astuple, rates)))
    )
    times = {
        cell: {key: statistics.median(one[key] for one in several) for key in several[0]}
        for cell, several in found.items()
    }
    return middle, times


def _measured() -> calibrate.Measured:
    """In a process of its own: torch's threads would spin on beside the server for a while."""
    code = (
        "import dataclasses, json; from sglang_ascend.planner import calibrate; "
        "print(json.dumps(dataclasses.asdict(calibrate.measure())))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    return calibrate.Measured(**json.loads(done.stdout))


def _cell(server: _Server, vocabulary: int, tokens: int, output: int, at_once: int, seed: int):
    """TTFT and TPOT, means over requests that start together, and output tokens a second."""
    generator = random.Random(seed)
    prompts = [[generator.randrange(5, vocabulary) for _ in range(tokens)] for _ in range(at_once)]
    marks: list[list[float]] = [[] for _ in prompts]

    def run(index: int) -> None:
        body = {
            "input_ids": prompts[index],
            "sampling_params": {"max_new_tokens": output, "ignore_eos": True, "temperature": 0},
            "stream": True,
        }
        with requests.post(
            f"{server.url}/generate", json=body, stream=True, timeout=REQUEST_TIMEOUT_S
        ) as response:
            response.raise_for_status()
            for line in response.iter_lines():
                if line.startswith(b"data: {"):
                    marks[index].append(time.perf_counter())

    threads = [threading.Thread(target=run, args=(i,)) for i in range(at_once)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(REQUEST_TIMEOUT_S)
    if any(len(own) < 2 for own in marks):
        raise RuntimeError("a request brought no stream of tokens; see the server's log")
    last = max(own[-1] for own in marks)
    return {
        "ttft_s": statistics.mean(own[0] - begin for own in marks),
        "tpot_s": statistics.mean((own[-1] - own[0]) / (output - 1) for own in marks),
        "tokens_per_s": at_once * output / (last - begin),
    }


def _deployment(model: str) -> Deployment:
    role = Role(Phase.SERVE, Topology(1, 1))
    fp32 = Precision("fp32", "fp32", "fp32")
    return Deployment("here", model, "reference_cpu", fp32, Speculation(), (role,))


def _predicted(model: str, rates: calibrate.Measured, cell: tuple, host_s: float):
    tokens, output, at_once = cell
    own = constants.default().changed({"host_step": host_s})
    work = Workload(input_tokens=tokens, output_tokens=output)
    bound = Model(_deployment(model), work, own, calibrate.hardware(rates))
    role = bound.deployment.roles[0]
    ttft = bound.prefill_step(role, float(at_once)).seconds
    tpot = bound.decode_step(role, float(at_once)).seconds
    whole = ttft + (output - 1) * tpot
    return {"ttft_s": ttft, "tpot_s": tpot, "tokens_per_s": at_once * output / whole}


def _table(rows: list[dict], host_s: float) -> str:
    lines = [f"host step {host_s * 1e3:.2f} ms; predicted / measured:"]
    for row in rows:
        ratios = {k: row["predicted"][k] / row["measured"][k] for k in row["measured"]}
        cells = ", ".join(f"{key.split('_')[0]} {ratio:.2f}" for key, ratio in ratios.items())
        lines.append(f"  {row['model']:24s}{row['cell']!s:16s}{cells}")
    errors = [
        abs(row["predicted"][k] / row["measured"][k] - 1) for row in rows for k in row["measured"]
    ]
    lines.append(f"median error {statistics.median(errors):.0%}, worst {max(errors):.0%}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
