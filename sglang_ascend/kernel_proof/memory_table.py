"""The committed table of on-chip memory: every kernel, configuration and chip."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sglang_ascend.errors import ConfigError
from sglang_ascend.kernel_proof import hivm, lint, tools
from sglang_ascend.kernel_proof.frontend import lower
from sglang_ascend.kernel_proof.planned_memory import LIMIT_BYTES
from sglang_ascend.kernels.launching import MEMORY_TABLE, row_name
from sglang_ascend.kernels.spec import KernelConfig, KernelSpec
from sglang_ascend.kernels.versions import TRITON


def rows_of(specs: Iterable[KernelSpec]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Check every configuration on every chip that it is for: (rows that passed, failures)."""
    rows, failures = {}, []
    for spec in specs:
        for config in spec.configs:
            failures += _check(spec, config, rows)
    return rows, failures


def _check(spec: KernelSpec, config: KernelConfig, rows: dict) -> list[str]:
    try:
        faults = lint.faults(spec, lower(spec, config))
    except ConfigError as error:
        return [str(error)]
    failures = [f"{spec.name}/{config.name}: {fault}" for fault in faults]
    for target in config.targets:
        result = hivm.check(spec, config, target)
        if not result.passed:
            failures.append(f"{row_name(spec, config, target)}: {result.message}")
        elif not faults:
            rows[row_name(spec, config, target)] = {
                "ub_bytes": result.ub_bytes,
                "l1_bytes": result.l1_bytes,
                "l0c_bytes": result.l0c_bytes,
                "given_up": list(result.given_up),
            }
    return failures


def document(rows: dict[str, dict[str, Any]]) -> str:
    """The text of `kernels/memory_table.json`."""
    header = {
        "compiler": f"bishengir-compile {tools.npu_compiler_build()}",
        "triton": TRITON,
        "limit_bytes": {
            "ub": LIMIT_BYTES["ub"],
            "l1": LIMIT_BYTES["cbuf"],
            "l0c": LIMIT_BYTES["cc"],
        },
    }
    lines = [f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(rows.items())]
    body = ",\n".join(lines)
    head = json.dumps(header)[1:-1]
    return f'{{{head},\n "rows": {{\n{body}\n}}}}\n'


def committed() -> str:
    """The committed text, or "" where there is none."""
    return MEMORY_TABLE.read_text() if MEMORY_TABLE.exists() else ""


def printed(rows: dict[str, dict[str, Any]]) -> str:
    """The table for a terminal or a page, in KiB."""
    limits = [LIMIT_BYTES[space] // 1024 for space in ("ub", "cbuf", "cc")]
    lines = [
        f"| kernel / configuration / chip | UB KiB of {limits[0]} | L1 KiB of {limits[1]}"
        f" | L0C KiB of {limits[2]} | switched off to fit |",
        "|---|---|---|---|---|",
    ]
    for name, row in sorted(rows.items()):
        kib = [f"{row[memory] / 1024:.1f}" for memory in ("ub_bytes", "l1_bytes", "l0c_bytes")]
        lines.append(f"| {name} | {' | '.join(kib)} | {', '.join(row['given_up']) or '-'} |")
    return "\n".join(lines)
