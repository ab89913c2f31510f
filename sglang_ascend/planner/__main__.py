"""``python -m sglang_ascend.planner``: predict, search, calibrate, evaluate."""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import sys
import time
from pathlib import Path

from sglang_ascend.deploy import deployment_check, deployment_file
from sglang_ascend.deploy.deployment import Precision
from sglang_ascend.errors import ConfigError
from sglang_ascend.planner import (
    calibrate_command,
    docs,
    evaluate,
    predict,
    report,
    search,
    workload,
)

_EPILOG = """examples:
  predict a2_pd_48 --workload chat_2k_2k --html report.html
  predict my.yaml --workload my_load.yaml --arrival-per-s 6
  search --hardware cm384_910c --cards 256 --tpot-ms 50 --workload assistant_3500_1500
  search --hardware a2_910b_280t --model qwen3-32b --weights bf16 --cards 8 --tpot-ms 40 \\
      --workload chat_1k_2k
  calibrate --output here.yaml         measure this machine's rates, for a hardware file
  calibrate --predict tiny-deepseek-v3  and say what the reference device will serve on it

Names are those of configs/deployments and configs/workloads; paths work as well. Every figure is a
prediction; docs/planner.md says what it rests on and how far off it has been."""


def main(arguments: list[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    try:
        return given.run(given)
    except ConfigError as error:
        print(f"refused: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sglang_ascend.planner",
        description="Predict what a cluster will serve, and choose a deployment for it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)

    one = commands.add_parser("predict", help="throughput, latency and where the time goes")
    one.add_argument("deployment", help="deployment YAML, or a name in configs/deployments")
    one.add_argument("--workload", required=True, help="workload YAML, or a name")
    one.add_argument("--arrival-per-s", type=float, help="requests a second, for percentiles")
    one.add_argument("--json", type=Path, help="write all figures here")
    one.add_argument("--html", type=Path, help="write the report with pictures here")
    one.set_defaults(run=_predict)

    many = commands.add_parser("search", help="the best deployment within a TPOT")
    many.add_argument("--hardware", required=True, help="name or YAML of configs/hardware")
    many.add_argument("--cards", required=True, type=int, help="cards that may be used")
    many.add_argument("--tpot-ms", type=float, help="limit on the time per output token")
    many.add_argument("--workload", required=True, help="workload YAML, or a name")
    many.add_argument("--model", default="deepseek-r1", help="built-in name or model folder")
    many.add_argument("--weights", default="int8", help="format of weights and activations")
    many.add_argument("--kv", default="bf16", help="format of the KV cache")
    many.add_argument("--acceptance", type=float, default=0.7, help="of each MTP draft")
    many.add_argument("--most-drafts", type=int, default=3, help="deepest MTP to look at")
    many.add_argument("--output", type=Path, help="write the deployment here")
    many.set_defaults(run=_search)

    calibrate_command.add_to(commands)

    judge = commands.add_parser("evaluate", help="refit for every left-out point (minutes)")
    judge.set_defaults(run=_evaluate)
    page = commands.add_parser(
        "docs", help="in a checkout: write the tables of docs/planner.md anew"
    )
    page.set_defaults(run=_docs)
    return parser


def bar(label: str, done: int, of: int) -> None:
    """A progress bar on stderr, gone when it is full."""
    filled = 30 * done // of
    ending = "\n" if done == of else ""
    print(f"\r{label} [{'#' * filled:30s}] {done}/{of}", end=ending, file=sys.stderr, flush=True)


def _predict(given: argparse.Namespace) -> int:
    deployment = deployment_file.read(given.deployment)
    deployment_check.check(deployment)
    load = workload.read(given.workload)
    if given.arrival_per_s is not None:
        load = dataclasses.replace(load, arrival_per_s=given.arrival_per_s)
    found = predict.predict(deployment, load)
    print(report.text(found))
    for target, content in ((given.json, report.data), (given.html, report.page)):
        if target:
            made = content(found)
            made = made if isinstance(made, str) else json.dumps(made, indent=1) + "\n"
            report.write(target, made)
    return 0


def _search(given: argparse.Namespace) -> int:
    load = workload.read(given.workload)
    if given.tpot_ms is not None:
        load = dataclasses.replace(load, tpot_ms=given.tpot_ms)
    question = search.Question(
        hardware=given.hardware,
        cards=given.cards,
        workload=load,
        model=given.model,
        precision=Precision(given.weights, given.weights, given.kv),
        acceptance=given.acceptance,
        most_drafts=given.most_drafts,
    )
    begin = time.monotonic()
    answer = search.search(question, lambda done, of: bar("search", done, of))
    print(search.text(answer, question))
    print(f"{answer.looked_at} working points in {time.monotonic() - begin:.1f} s")
    content = deployment_file.dump(answer.deployment)
    print("\n" + content)
    if given.output:
        report.write(given.output, content)
    return 0


def _evaluate(given: argparse.Namespace) -> int:
    evaluate.write(evaluate.run(bar))
    print(docs.leave_one_out_table())
    return 0


def _docs(given: argparse.Namespace) -> int:
    docs.write()
    print(f"wrote {docs.PAGE} and its pictures")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers of calibrate end too
    sys.exit(main())
