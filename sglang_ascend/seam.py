"""A seam: one place at which this package changes how SGLang behaves, written down as data.

Rooms declare their seams in a ``seams.py``; ``sglang_ascend.plugin.ledger`` installs them through
SGLang's ``HookRegistry`` and checks that each one landed, because the registry itself only logs a
hook that failed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

ProcessKind = Literal[
    "http_server", "tokenizer_worker", "detokenizer", "scheduler", "dp_controller"
]
HookKind = Literal["before", "after", "around", "replace", "set"]

PROCESS_KINDS: tuple[ProcessKind, ...] = (
    "http_server",
    "tokenizer_worker",
    "detokenizer",
    "scheduler",
    "dp_controller",
)


@dataclass(frozen=True)
class Seam:
    """One hook on SGLang.

    Attributes:
        name: short unique name, used by ``doctor`` and in error messages.
        target: dotted path of the function, method or class, as ``HookRegistry.register`` takes it;
            for kind "set", of a module's variable.
        kind: how the hook meets the target (see ``sglang.srt.plugins.hook_registry.HookType``), or
            "set": the module's variable gets our value.
        hook: ``"module:attribute"`` of our function, class or value.
        processes: the process kinds in which the target runs; elsewhere nothing is imported.
        symptom: what a user sees without the seam.
        why_safe: why changing the target cannot break what does not need the change.
        upstream: the upstream report, or "none found".
        remove_when: the condition under which the seam can go.
        devices: the devices that need it.
    """

    name: str
    target: str
    kind: HookKind
    hook: str
    processes: tuple[ProcessKind, ...]
    symptom: str
    why_safe: str
    upstream: str
    remove_when: str
    devices: tuple[str, ...] = ("npu", "reference")

    def load_hook(self) -> Callable:
        """Import and return our side of the seam."""
        module_name, _, attribute = self.hook.partition(":")
        return getattr(importlib.import_module(module_name), attribute)
