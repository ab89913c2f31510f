"""``planner calibrate``: measure this machine, and predict what the reference device will serve."""

from __future__ import annotations

import argparse
from pathlib import Path

from sglang_ascend.errors import ConfigError
from sglang_ascend.models import catalog
from sglang_ascend.planner import report
from sglang_ascend.planner.calibration import host, machine, prediction
from sglang_ascend.planner.calibration.steps import FLOAT32, PRECISIONS

_DESCRIPTION = """\
Time the reference device's kernels on this machine: products of several sizes, attention, memory
and loopback, each alone, in the way in which serving calls them. That takes half a minute; keep the
machine quiet meanwhile.

With --predict, also serve four small models of random weights, which shows what the host takes:
HTTP, scheduler and Python between kernels. From both follows what a server of MODEL will reach
here, without starting it: time to the first token (TTFT), time per token after it (TPOT) and tokens
a second, for requests that come together. That takes under two minutes.
"""
_EPILOG = f"""\
examples:
  calibrate --output here.yaml                    rates for configs/hardware and deployment files
  calibrate --predict {catalog.DEFAULT_MODEL}
  calibrate --predict {catalog.TINY_DEEPSEEK_V3} --requests 1,4 --input-len 512 --output-len 32
  calibrate --predict {catalog.DEFAULT_MODEL} --format ascend_w8a8

Every figure is a prediction; `python -m benchmark.serving --partners none` measures the same.
docs/planner.md says how far off predictions were."""


def add_to(commands) -> None:
    """Add the command to the planner's."""
    parser = commands.add_parser(
        "calibrate",
        help="measure this machine, and predict the reference device on it",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    adding = parser.add_argument
    adding("--output", type=Path, metavar="FILE", help="write the rates as a hardware YAML")
    adding("--predict", metavar="MODEL", help="an embedded model or a checkpoint folder")
    adding(
        "--format",
        choices=tuple(PRECISIONS),
        default=FLOAT32,
        help=f"number format that it is served in (default: {FLOAT32})",
    )
    adding(
        "--requests",
        default=f"{host.ALONE},{host.TOGETHER}",
        metavar="N,N,...",
        help=f"requests at the same time (default: {host.ALONE},{host.TOGETHER})",
    )
    adding("--input-len", type=int, default=host.INPUT, help="tokens of a prompt (default: 128)")
    adding("--output-len", type=int, default=host.OUTPUT, help="tokens of an answer (default: 64)")
    parser.set_defaults(run=_run)


def _run(given: argparse.Namespace) -> int:
    loads = _loads(given)
    if given.predict is None:
        rates = machine.measure_rates()
        print(machine.kernels_text(rates))
    else:
        question = prediction.question(given.predict, given.format)
        measured = machine.measure(question.formats)
        rates = measured.rates
        print(machine.kernels_text(rates))
        print(machine.host_text(measured.host))
        print(_table(question.on(measured), loads))
    if given.output:
        report.write(given.output, machine.hardware_yaml(rates))
    return 0


def _loads(given: argparse.Namespace) -> list[prediction.Load]:
    try:
        requests = [int(word) for word in given.requests.split(",")]
    except ValueError:
        requests = []
    if not requests or min(requests) < 1:
        raise ConfigError(
            f"--requests {given.requests!r} is not accepted; give numbers such as 1,16"
        )
    for flag, value, least in (
        ("--input-len", given.input_len, 1),
        ("--output-len", given.output_len, 2),
    ):
        if value < least:
            raise ConfigError(f"{flag} {value} is too small; give {least} or more")
    return [prediction.Load(n, given.input_len, given.output_len) for n in requests]


def _table(predictor: prediction.Predictor, loads: list[prediction.Load]) -> str:
    head = f"{'requests':>8} {'TTFT ms':>9} {'TPOT ms':>9} {'tokens/s':>9}"
    lines = ["predicted, not measured:", head]
    for load in loads:
        served = predictor.serve(load)
        lines.append(
            f"{load.requests:>8} {served.ttft_s * 1e3:>9.1f} {served.tpot_s * 1e3:>9.2f}"
            f" {served.tokens_per_s:>9.1f}"
        )
    return "\n".join(lines)
