"""Flags of benchmark.ep_dispatch."""

from __future__ import annotations

import argparse
from pathlib import Path

from sglang_ascend.errors import ConfigError

_RESULTS = Path(__file__).resolve().parent / "results" / "ep_dispatch"
_HELP = """\
Times a MoE layer's exchange over both expert-parallel transports and shows what the chooser picks.

Each rank is a process in a network namespace of its own. Links are shaped with tc; latency and the
cost of posting a message are added before each collective. The rates are low on purpose: the wire
shall take the time, not the two cores, and the ratios are those of an Atlas 800I A2 cluster
(inter-node bandwidth 1/7 of intra-node, one posted message worth about five tokens on the wire).
Before the cells the ranks calibrate themselves (`moe/dispatch/calibration`), and the chooser
decides from that calibration and the routing seen so far, never from the measured cells.

Results: a table, DIR/ep_dispatch.json and DIR/ep_dispatch.svg. The last part of both comes from the
cost model: the same comparison at the scale of the published reports, predicted, not measured.
"""
_EXAMPLES = """\
examples:
  python -m benchmark.ep_dispatch                             all cells, some minutes, needs root
  python -m benchmark.ep_dispatch --nodes 2 --tokens 1,64     a look at one topology
  python -m benchmark.ep_dispatch --loopback --ranks 2 --nodes 1 --tokens 4   no root: the code only
"""


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The flags, checked.

    Raises:
        ConfigError: values out of range or that do not fit together.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmark.ep_dispatch",
        description=_HELP,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, default, text in (
        ("--tokens", [2**i for i in range(9)], "tokens a rank"),
        ("--nodes", [1, 2, 4], "nodes that the ranks are spread over"),
        ("--top-k", [2, 8], "experts a token"),
    ):
        shown = ",".join(map(str, default))
        parser.add_argument(
            name,
            type=_integers,
            default=default,
            metavar="N,N,...",
            help=f"{text} (default: {shown})",
        )
    parser.add_argument(
        "--routing",
        default="balanced,skewed",
        help="balanced, skewed (the slots of one rank are preferred) or both (default)",
    )
    for name, default, text in (
        ("--ranks", 4, "processes"),
        ("--slots", 32, "expert slots over all ranks"),
        ("--hidden", 256, "float32 elements of a token"),
        ("--repeats", 5, "runs of each transport in a cell, in turn, after one to warm up"),
        ("--hot-weight", 4.0, "preference for the slots of rank 0 in skewed routing"),
        ("--inter-mb-s", 3.0, "MB/s of a rank's port between nodes, each direction"),
        ("--intra-mb-s", 21.0, "MB/s of a rank's port within a node, each direction"),
        ("--inter-latency-ms", 1.5, "of every exchange that reaches another node"),
        ("--intra-latency-ms", 0.5, "of every exchange within a node"),
        ("--post-ms", 1.5, "to start a message to another node"),
        ("--timeout-s", 60.0, "longest wait of a rank for another"),
    ):
        parser.add_argument(
            name, type=type(default), default=default, help=f"{text} (default: {default:g})"
        )
    parser.add_argument(
        "--loopback",
        action="store_true",
        help="no namespaces and no limits: for a check of the code where root or tc are missing",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=_RESULTS,
        metavar="DIR",
        help="default: benchmark/results/ep_dispatch",
    )
    args = parser.parse_args(argv)
    _check(args)
    return args


def _check(args: argparse.Namespace) -> None:
    for name in ("tokens", "nodes", "top_k"):
        if min(getattr(args, name)) < 1:
            raise ConfigError(f"--{name.replace('_', '-')} takes numbers from 1")
    for name in ("ranks", "repeats", "hidden", "slots"):
        if getattr(args, name) < 1:
            raise ConfigError(f"--{name} is {getattr(args, name)}; it is at least 1")
    for name in ("inter_mb_s", "intra_mb_s", "hot_weight", "timeout_s"):
        if not 0 < getattr(args, name) < float("inf"):
            raise ConfigError(f"--{name.replace('_', '-')} must be above 0")
    for name in ("inter_latency_ms", "intra_latency_ms", "post_ms"):
        if not 0 <= getattr(args, name) < float("inf"):
            raise ConfigError(f"--{name.replace('_', '-')} must be 0 or more")
    if bad := [nodes for nodes in args.nodes if args.ranks % nodes]:
        raise ConfigError(f"--ranks {args.ranks} does not divide over {bad[0]} nodes")
    if args.slots % args.ranks or args.slots < max(args.top_k):
        raise ConfigError(
            f"--slots {args.slots} must be a multiple of --ranks {args.ranks} and at least the "
            f"greatest --top-k {max(args.top_k)}"
        )
    if unknown := set(args.routing.split(",")) - {"balanced", "skewed"}:
        raise ConfigError(f"--routing {sorted(unknown)[0]!r}; accepted: balanced, skewed")


def _integers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]
