"""Installing the seams of one process, and refusing to run where one did not land."""

from __future__ import annotations

import importlib

from sglang_ascend.plugin import ledger
from sglang_ascend.seam import ProcessKind, Seam


def _set(seam: Seam) -> None:
    """Give a module's variable our value; one that does not exist fails in the ledger's check."""
    module_name, _, variable = seam.target.rpartition(".")
    module = importlib.import_module(module_name)
    if hasattr(module, variable):
        setattr(module, variable, seam.load_hook())


def install(kind: ProcessKind, device: str) -> None:
    """Register and apply the seams of this process kind.

    SGLang logs a hook or plugin that fails and goes on, which would serve wrong answers or crash
    later. SystemExit passes through its handler and ends the process with the reason.
    """
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    if kind in ("http_server", "scheduler"):
        from sglang_ascend.plugin.registrations import register

        register(kind)
    for seam in ledger.needed(kind, device):
        if seam.kind == "set":
            _set(seam)
        else:
            HookRegistry.register(seam.target, seam.load_hook(), HookType(seam.kind))
    HookRegistry.apply_hooks()
    rows = ledger.statuses(kind, device)
    ledger.write_report(kind, rows)
    failed = [f"{row.seam} ({row.detail})" for row in rows if row.status == "FAILED"]
    if failed:
        raise SystemExit(
            f"error: {len(failed)} seam(s) on SGLang failed in the {kind} process: "
            f"{'; '.join(failed)}; run `python -m sglang_ascend.doctor`"
        )
