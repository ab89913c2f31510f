"""``python -m benchmark.dp_controller``: our DP policy against SGLang's, on real request traces."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from sglang_ascend.errors import ConfigError

_ROOT = Path(__file__).resolve().parents[1]
_SAMPLES = _ROOT / "tests/data"
_DESCRIPTION = """\
Which rank gets a request? Sends request traces through SGLang's own DataParallelController, once
with each of its load balance methods and once with ours, and simulates the ranks behind it: paged
KV with a radix cache, chunked prefill, decode. The policies are the real code; time on the ranks is
a prediction from the constants in benchmark/dp_controller_costs.py.

load: the work of all requests, without any reuse, over what the ranks could do in the trace's time;
      the trace is sped up or slowed down to get there
KV max/mean: KV tokens of the fullest rank over the mean of all, sampled every simulated second
cached: prompt tokens that were found in the chosen rank's prefix cache
"""
_EXAMPLES = """\
examples:
  python -m benchmark.dp_controller
      the samples of both traces in tests/data
  python -m benchmark.dp_controller --trace conversation_trace.jsonl --trace azure_conv.csv
      whole traces: Mooncake's (FAST25 release) and Azure's (AzureLLMInferenceTrace_conv)
  python -m benchmark.dp_controller --lockstep --loads 0.1 0.2
      ranks that step together, as under DP attention
"""


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmark.dp_controller",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--trace",
        action="append",
        type=Path,
        metavar="FILE",
        help=".jsonl in Mooncake's format or .csv in Azure's; may be repeated (default: samples)",
    )
    parser.add_argument("--ranks", type=int, default=8, help="DP ranks (default: 8)")
    parser.add_argument(
        "--loads",
        type=float,
        nargs="+",
        default=[0.5, 0.7, 0.9],
        help="shares of what the ranks can do (default: 0.5 0.7 0.9)",
    )
    parser.add_argument(
        "--lockstep", action="store_true", help="all ranks step together (DP attention)"
    )
    parser.add_argument(
        "--requests", type=int, default=None, help="first requests of each trace (default: all)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=_ROOT / "benchmark/results/dp_controller",
        help="folder for results.json and results.svg (default: benchmark/results/dp_controller)",
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run everything; 0, or 2 where an argument cannot be used."""
    args = parse(argv)
    os.environ.setdefault("SGLANG_ASCEND_DEVICE", "reference")
    try:
        run(args)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def run(args: argparse.Namespace) -> None:
    """Simulate, print the tables, write the files."""
    from tqdm import tqdm

    from benchmark import dp_controller_choice_time as choice_time
    from benchmark import dp_controller_report as report
    from benchmark.dp_controller_costs import Costs
    from benchmark.dp_controller_policies import POLICIES
    from benchmark.dp_controller_run import simulate
    from benchmark.dp_controller_traces import at_speed, load

    _check(args)
    costs = Costs.for_ranks(args.ranks, args.lockstep)
    rows = []
    paths = args.trace or sorted(_SAMPLES.glob("dp_*_sample.*"))
    for path in paths:
        requests = load(path)[: args.requests]
        for share in args.loads:
            arriving = at_speed(requests, costs.speed_for(requests, args.ranks, share))
            outcomes = []
            with tqdm(
                total=len(arriving) * len(POLICIES),
                unit="requests",
                desc=f"{path.stem} {share:.0%}",
            ) as bar:
                for policy in POLICIES:
                    outcomes.append(
                        simulate(arriving, policy, args.ranks, args.lockstep, costs, bar.update)
                    )
            pooled = simulate(arriving, POLICIES[0], 1, False, costs.pooled(args.ranks)).hit_rate
            print(f"\n{path.name}, {len(arriving)} requests, {args.ranks} ranks, load {share:.0%}")
            print(report.table(outcomes))
            print(report.ratios(outcomes))
            print(f"  cached if all ranks shared one pool: {pooled:.1%}", flush=True)
            rows.append(report.Row(path.stem, share, outcomes, pooled))
    cost_rows = choice_time.measure()
    print("\nCPU time of a choice on this machine (median)")
    print(choice_time.table(cost_rows))
    args.out.mkdir(parents=True, exist_ok=True)
    result = {
        "ranks": args.ranks,
        "lockstep": args.lockstep,
        "costs": asdict(costs),
        "runs": [
            {
                "trace": row.trace,
                "load": row.load,
                "hit_rate_of_one_pool": row.pooled_hit_rate,
                "policies": [outcome.as_json() for outcome in row.outcomes],
            }
            for row in rows
        ],
        "choice_time": cost_rows,
    }
    (args.out / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    (args.out / "results.svg").write_text(report.svg(rows) + "\n")
    print(f"\nwrote {args.out / 'results.json'} and results.svg")


def _check(args: argparse.Namespace) -> None:
    if args.ranks < 1:
        raise ConfigError(f"--ranks {args.ranks} is too small; give 1 or more")
    if args.requests is not None and args.requests < 2:
        raise ConfigError(f"--requests {args.requests} is too small; give 2 or more")
    for share in args.loads:
        if not 0 < share < 10:
            raise ConfigError(f"--loads {share} is out of range; give shares such as 0.7")


if __name__ == "__main__":
    sys.exit(main())
