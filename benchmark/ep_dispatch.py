"""python -m benchmark.ep_dispatch: AllGather/ReduceScatter, Dispatch/Combine, and the chooser.

Both transports run in turn over gloo, in real processes, one network namespace each, on links that
are slower between nodes than within. See --help.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmark import ep_dispatch_report as report
from benchmark import netns
from benchmark.ep_dispatch_flags import parse
from sglang_ascend.comm.topology import Topology
from sglang_ascend.errors import ConfigError

ROOT = Path(__file__).resolve().parents[1]


def main(argv: list[str] | None = None) -> int:
    try:
        args = parse(argv)
        if not args.loopback and (lack := netns.missing()):
            raise ConfigError(
                f"the links of a cluster cannot be made here, which takes {lack}; run as root with "
                "iproute2, or give --loopback to check the code without them"
            )
        calibrations, cells = [], []
        total = len(args.nodes) * len(_cells(args))
        with tqdm(total=total, unit="cell", disable=None) as bar:
            for nodes in args.nodes:
                bar.set_description(f"{nodes} node(s)")
                for record in _run_topology(args, nodes):
                    if "cell" in record:
                        cells.append(record["cell"])
                        bar.update()
                    else:
                        calibrations.append({"nodes": nodes, **record["calibration"]})
        _write(args, calibrations, cells)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _cells(args: argparse.Namespace) -> list[dict[str, Any]]:
    return [
        {"tokens": tokens, "routing": routing, "top_k": top_k}
        for top_k in args.top_k
        for routing in args.routing.split(",")
        for tokens in args.tokens
    ]


def _run_topology(args: argparse.Namespace, nodes: int):
    """Yield what rank 0 reports.

    Raises:
        ConfigError: a rank failed or did not end in time; with the end of its standard error.
    """
    topology = Topology(nodes, args.ranks // nodes)
    if args.loopback:
        cluster = netns.Loopback()
    else:
        cluster = netns.Cluster(topology, args.intra_mb_s * 1e6, args.inter_mb_s * 1e6)
    with cluster, tempfile.TemporaryDirectory() as folder:
        plan = Path(folder, "plan.json")
        plan.write_text(json.dumps(_plan(args, nodes, Path(folder, "store"))))
        own = {"GLOO_SOCKET_IFNAME": cluster.interface, "OMP_NUM_THREADS": "1"}
        errors = [Path(folder, f"rank{rank}.err") for rank in range(args.ranks)]
        ranks: list[subprocess.Popen] = []
        try:
            for rank, error in enumerate(errors):
                worker = [sys.executable, "-m", "benchmark.ep_dispatch_worker", plan, str(rank)]
                stdout = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
                with error.open("w") as stderr:
                    ranks.append(
                        subprocess.Popen(
                            [*cluster.command(rank), *worker],
                            cwd=ROOT,
                            env={**os.environ, **own},
                            stdout=stdout,
                            stderr=stderr,
                            text=True,
                        )
                    )
            yield from map(json.loads, ranks[0].stdout)
            codes = [process.wait(timeout=args.timeout_s) for process in ranks]
        except subprocess.TimeoutExpired as error:
            raise ConfigError(f"a rank did not end within {args.timeout_s:g} s") from error
        finally:
            for process in ranks:
                process.kill()
                process.wait()
        failed = [
            f"rank {rank} with {code}: {_last_line(error)}"
            for rank, (code, error) in enumerate(zip(codes, errors))
            if code
        ]
        if failed:
            raise ConfigError(f"ranks on {nodes} node(s) failed: {'; '.join(failed)}")


def _last_line(file: Path) -> str:
    return "".join(file.read_text().splitlines()[-1:])


def _plan(args: argparse.Namespace, nodes: int, store: Path) -> dict[str, Any]:
    return {
        "nodes": nodes,
        "store": str(store),
        "cells": _cells(args),
        "shared_port": int(args.loopback),
        "priority": not args.loopback,
        "latency_s": {
            "intra_node": args.intra_latency_ms / 1e3,
            "inter_node": args.inter_latency_ms / 1e3,
        },
        "post_s": args.post_ms / 1e3,
        "timeout_s": args.timeout_s,
        "ranks": args.ranks,
        "slots": args.slots,
        "hidden": args.hidden,
        "repeats": args.repeats,
        "hot_weight": args.hot_weight,
    }


def _write(args: argparse.Namespace, calibrations: list, cells: list) -> None:
    predictions = report.large_scale()
    settings = {key: value for key, value in vars(args).items() if key != "out"}
    rates = "loopback, no limits"
    if not args.loopback:
        rates = f"{args.intra_mb_s:g} MB/s within a node, {args.inter_mb_s:g} MB/s between"
    results = {
        "machine": {"cores": os.cpu_count(), "torch": version("torch")},
        "settings": settings,
        "summary": report.summary(cells),
        "calibrations": calibrations,
        "cells": cells,
        "large_scale_predicted": predictions,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "ep_dispatch.json").write_text(json.dumps(_rounded(results), indent=1) + "\n")
    (args.out / "ep_dispatch.svg").write_text(report.heat_map(cells, predictions, rates))
    print(report.table(cells))
    print(json.dumps(results["summary"], indent=1))
    print(f"written: {args.out}/ep_dispatch.json and ep_dispatch.svg")


def _rounded(value: Any) -> Any:
    """Floats to six digits, to keep the file small."""
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
