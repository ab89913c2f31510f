"""Compare every NPU call with its reference, for each chip, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sglang_ascend.contract import call_sites, outcome, packages, stand_in
from sglang_ascend.contract.cases import Case, load
from sglang_ascend.contract.expected import expected_outcome
from sglang_ascend.errors import ConfigError
from sglang_ascend.ops import load_all

#: The chips, and a name that each of them has for CANN.
SOCS = {"910B": "Ascend910B3", "910C": "Ascend910_9392"}
_PROCESS_TIMEOUT_S = 600


@dataclass
class Report:
    """What was checked; the contract holds if `problems` is empty.

    results: calls by chip. refusals: wrong calls by chip, and who refuses each.
    """

    socs: tuple[str, ...]
    operators: tuple[str, ...] = ()
    results: dict[str, list[dict]] = field(default_factory=dict)
    refusals: dict[str, list[dict]] = field(default_factory=dict)
    sites: list[call_sites.Site] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def as_json(self) -> dict:
        """Everything, in types that JSON has."""
        return asdict(self)


def environment(libraries: Path, soc: str, folder: Path = packages.FOLDER) -> dict[str, str]:
    """Environment of a process that loads torch_npu on the stand-ins in `libraries`."""
    return {
        **os.environ,
        "PYTHONPATH": _prepend(folder, "PYTHONPATH"),
        "LD_LIBRARY_PATH": _prepend(libraries, "LD_LIBRARY_PATH"),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "OMP_NUM_THREADS": "1",
        stand_in.SOC_ENV: SOCS[soc],
    }


def _prepend(path: Path, variable: str) -> str:
    return ":".join(filter(None, (str(path), os.environ.get(variable))))


def check(
    socs: Sequence[str] = tuple(SOCS),
    operators: Sequence[str] = (),
    folder: Path = packages.FOLDER,
    progress=lambda text: None,
) -> Report:
    """Check all operators, or those named, on each chip.

    progress: called with a line on what is being done.

    Raises:
        ConfigError: an unknown name, or a missing package or tool.
    """
    known = load_all()
    for given, choices in ((socs, SOCS), (operators, known)):
        if unknown := sorted(set(given) - set(choices)):
            raise ConfigError(f"unknown: {', '.join(unknown)}; choose among {', '.join(choices)}")
    torch_npu = packages.find_torch_npu(folder)
    chosen = {name: op for name, op in known.items() if not operators or name in operators}
    report = Report(tuple(socs), tuple(chosen))
    with tempfile.TemporaryDirectory() as scratch:
        progress("building stand-ins for CANN's libraries")
        libraries = Path(scratch)
        stand_in.build(torch_npu, libraries)
        running = {soc: _start(soc, libraries, operators, folder) for soc in socs}
        try:
            progress(f"calling the references of {len(chosen)} operators")
            wanted = [_expected(case, chosen[case.operator]) for case in load(chosen)]
            for soc, (process, result) in running.items():
                progress(f"waiting for the NPU calls of {soc}")
                _compare(report, soc, _finish(process, result, soc), wanted)
        finally:
            for process, _ in running.values():
                process.kill()
                process.wait()
    report.sites = call_sites.find()
    if not operators:
        report.problems += not_under_contract(report)
    return report


def _start(soc, libraries, operators, folder):
    result = libraries / f"{soc}.json"
    log = result.with_suffix(".log").open("w")
    command = [sys.executable, "-m", "sglang_ascend.contract.npu_side", str(result), *operators]
    with log:
        process = subprocess.Popen(
            command, env=environment(libraries, soc, folder), stdout=log, stderr=log
        )
    return process, result


def _finish(process: subprocess.Popen, result: Path, soc: str) -> dict:
    try:
        code = process.wait(_PROCESS_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise ConfigError(f"the NPU calls of {soc} took over {_PROCESS_TIMEOUT_S} s") from None
    if code or not result.exists():
        lines = result.with_suffix(".log").read_text().strip().splitlines() or ["no output"]
        raise ConfigError(f"the process with torch_npu ({soc}) exited with {code}: {lines[-1]}")
    return json.loads(result.read_text())


def _expected(case: Case, operator) -> list[dict | None] | str:
    """What the reference returns, or the error that it raises, in one line."""
    try:
        return expected_outcome(operator, case.build)
    except Exception as error:
        return f"the reference fails: {type(error).__name__}: {' '.join(str(error).split())}"


def _compare(report: Report, soc: str, got: dict, wanted: list) -> None:
    if got["soc"] != SOCS[soc]:
        report.problems.append(f"{soc}: torch_npu says that the chip is {got['soc']}")
    results, helpers = got["results"], got["helpers"]
    expectations = [*wanted, *(helper["expected"] for helper in helpers)]
    report.results[soc] = [*results, *helpers]
    specs = {name: operator.spec for name, operator in load_all().items()}
    for result, expected in zip(report.results[soc], expectations, strict=True):
        where = f"{soc} {result['operator']} ({result['label']})"
        spec = specs.get(result["operator"])
        names = ["result"] if spec is None else outcome.names(spec)
        report.problems += [f"{where}: {problem}" for problem in _found(result, expected, names)]
    report.refusals[soc] = got["refusals"]
    report.problems += [
        f"{soc} {row['operator']} ({row['label']}): nobody refuses {row['mistake']}"
        for row in got["refusals"]
        if not row["specification"] and row["npu"] is None
    ]
    report.problems += [f"{soc} {problem}" for problem in got["api"]]


def _found(result: dict, expected: list[dict | None] | str, names: list[str]) -> list[str]:
    if "error" in result:
        return [result["error"]]
    if isinstance(expected, str):
        return [expected]
    return [*result["problems"], *outcome.differences(expected, result["outputs"], names)]


def not_under_contract(report: Report) -> Iterable[str]:
    """Sites that no call has reached, and those of which nobody can say what they call."""
    reached = {
        (file, line, name)
        for results in report.results.values()
        for result in results
        for name, file, line in result["calls"]
    }
    for site in report.sites:
        if site.kind == "hidden":
            yield f"{site}: write out the operator (torch.ops.npu.<name>), or it cannot be checked"
        if site.kind == "operator" and (site.file, site.line, site.name) not in reached:
            yield f"{site}: not under contract; add a case that reaches this call"
