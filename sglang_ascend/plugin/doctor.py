"""What this installation is made of, and whether every seam on SGLang lands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from sglang_ascend.deploy import dependencies
from sglang_ascend.errors import ConfigError
from sglang_ascend.native import build
from sglang_ascend.plugin import device_choice, ledger, versions
from sglang_ascend.seam import PROCESS_KINDS

#: How each process kind reaches ``load_plugins``; a probe enters through a function of that name.
_PROBE = """
import sys
from sglang.srt.plugins import load_plugins
def {entry}():
    load_plugins()
{entry}()
"""
_PROBE_ENTRIES = {
    "http_server": "main",
    "scheduler": "run_scheduler_process",
    "detokenizer": "run_detokenizer_process",
    "dp_controller": "run_data_parallel_controller_process",
}
_PROBE_TIMEOUT_S = 300


def promised_versions() -> dict[str, str]:
    """The versions with which seams and NPU calls were checked; no other is promised."""
    no_deps = dict(pin.split("==") for pin in dependencies.pins())
    npu = device_choice.TORCH_NPU_VERSION
    return {
        "sglang": ", ".join(versions.SUPPORTED_SGLANG),
        "torch": npu,
        "torch_npu": npu,
        "triton-ascend": no_deps["triton-ascend"],
    }


def version_rows() -> list[tuple[str, str]]:
    """Name and version of everything that a report about this installation has to state."""
    promised = promised_versions()
    rows = [("python", sys.version.split()[0])]
    for name in (*promised, "transformers"):
        found = dependencies.installed_version(name) or "not installed"
        rows.append(
            (name, f"{found:<14} promised: {promised[name]}" if name in promised else found)
        )
    rows.append(("CANN", _cann_version()))
    return rows


def _cann_version() -> str:
    home = os.environ.get("ASCEND_TOOLKIT_HOME")
    if not home:
        return "not set up (no ASCEND_TOOLKIT_HOME in the environment)"
    for info in sorted(Path(home).glob("*/ascend_toolkit_install.info")):
        for line in info.read_text().splitlines():
            if line.startswith("version="):
                return line.removeprefix("version=")
    return f"unknown version in {home}"


def _native_kernels() -> str:
    try:
        return f"compiled: {build.library().name}"
    except (ConfigError, OSError) as error:
        return f"none, the reference device is several times slower: {error}"


def device_rows() -> list[tuple[str, str]]:
    """Devices that could serve here, and the one that ``--device auto`` takes."""
    missing = device_choice.missing_for_npu()
    choice = device_choice.choose("auto")
    return [
        ("npu", missing or "usable"),
        ("reference", f"usable, {os.cpu_count()} CPU cores"),
        ("native kernels", _native_kernels()),
        ("auto", f"{choice.device} ({choice.reason})"),
    ]


def probe(kind: str, choice: device_choice.DeviceChoice) -> list[ledger.SeamStatus]:
    """Load the plug-in in a fresh process of ``kind`` and return its seam statuses."""
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, ledger.REPORT_DIR_ENV: folder}
        device_choice.publish(choice, environ)
        if kind == "tokenizer_worker":
            command = [sys.executable, "-c", "import sglang_ascend.plugin.tokenizer_worker_app"]
        else:
            command = [sys.executable, "-c", _PROBE.format(entry=_PROBE_ENTRIES[kind])]
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S
        )
        reports = list(Path(folder).glob(f"{kind}-*.json"))
        if not reports:
            tail = done.stderr.strip().splitlines()[-1:] or ["no output"]
            return [ledger.SeamStatus("(process)", "FAILED", tail[0])]
        return [ledger.SeamStatus(**row) for row in json.loads(reports[0].read_text())]


def main() -> int:
    """Print the tables; 0 where everything is in order, 1 where a seam or version is not."""
    _print_table("versions", version_rows())
    try:
        dependencies.check()
        versions.check_sglang()
    except ConfigError as error:
        print(f"\nFAILED: {error}")
        return 1
    _print_table("devices", device_rows())
    choice = device_choice.choose("auto")
    columns: dict[str, dict[str, ledger.SeamStatus]] = {}
    for kind in PROCESS_KINDS:
        print(f"... probing a {kind} process", file=sys.stderr, flush=True)
        columns[kind] = {row.seam: row for row in probe(kind, choice)}
    return _report_seams(columns, choice.device)


def _report_seams(columns: dict[str, dict[str, ledger.SeamStatus]], device: str) -> int:
    rows, failures = [], []
    for seam in ("(process)", *(seam.name for seam in ledger.ALL_SEAMS)):
        statuses = {kind: column[seam] for kind, column in columns.items() if seam in column}
        if not statuses:
            continue
        applied = [kind for kind, row in statuses.items() if row.status == "applied"]
        failed = [
            f"{kind}: {row.detail}" for kind, row in statuses.items() if row.status == "FAILED"
        ]
        failures += failed
        verdict = "FAILED" if failed else "applied" if applied else "not needed"
        rows.append((seam, f"{verdict:<10} {'; '.join(failed) or ', '.join(applied)}"))
    _print_table(f"seams on SGLang (device {device})", rows)
    print(f"\n{'FAILED' if failures else 'ok'}: {len(rows)} seams, {len(failures)} failures")
    return 1 if failures else 0


def _print_table(title: str, rows: list[tuple[str, str]]) -> None:
    width = max((len(name) for name, _ in rows), default=0)
    print(f"\n{title}")
    for name, value in rows:
        print(f"  {name:<{width}}  {value}")
