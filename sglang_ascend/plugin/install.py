"""Installing the seams of one process, and refusing to run where one did not land."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from sglang.srt.plugins import hook_registry
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from sglang_ascend.plugin import ledger
from sglang_ascend.seam import ProcessKind, Seam

#: Identity of an old object -> the object (which keeps the identity taken), the new one, the owner.
_Replacements = dict[int, tuple[object, object, object]]

_ABSENT = object()
#: Seams in force here, each with what its target's owner had under that name before.
_in_force: dict[Seam, object] = {}
_installed_by: int | None = None


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
    global _installed_by
    _installed_by = os.getpid()
    if kind in ("http_server", "scheduler"):
        from sglang_ascend.plugin.registrations import register

        register(kind)
    for seam in ledger.needed(kind, device):
        if seam in _in_force:
            continue
        _in_force[seam] = _own_attribute(seam)
        if seam.kind == "set":
            _set(seam)
        else:
            HookRegistry.register(seam.target, seam.load_hook(), HookType(seam.kind))
    with _one_search():
        HookRegistry.apply_hooks()
    rows = ledger.statuses(kind, device)
    ledger.write_report(kind, rows)
    failed = [f"{row.seam} ({row.detail})" for row in rows if row.status == "FAILED"]
    if failed:
        raise SystemExit(
            f"error: {len(failed)} seam(s) on SGLang failed in the {kind} process: "
            f"{'; '.join(failed)}; run `python -m sglang_ascend.doctor`"
        )


def inherited() -> bool:
    """Whether this process is a fork of one that had installed its seams."""
    return _installed_by not in (None, os.getpid())


def take_back(kind: ProcessKind | None, device: str) -> None:
    """Undo the seams in force that a process of this kind does not need; None: all of them.

    ``HookRegistry`` copies a hook into every module that has imported its target by name; those are
    restored as well.
    """
    kept = set(ledger.needed(kind, device)) if kind else set()
    restored: _Replacements = {}
    for seam in [seam for seam in _in_force if seam not in kept]:
        before = _in_force.pop(seam)
        owner, name = _owner(seam)
        hooked = vars(owner)[name]
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
        if seam.kind != "set" and isinstance(owner, ModuleType):
            restored[id(hooked)] = (hooked, before, owner)
    _replace_in_modules(restored)


@contextmanager
def _one_search() -> Iterator[None]:
    """Let ``HookRegistry`` look for copies of its targets once for all hooks.

    For each hook it looks at all names of all modules, which takes a second or more in the sum.
    """
    replaced: _Replacements = {}

    def collect(original: object, hooked: object, owner: object) -> int:
        replaced[id(original)] = (original, hooked, owner)
        return 0

    search = hook_registry._propagate_patch
    hook_registry._propagate_patch = collect
    try:
        yield
    finally:
        hook_registry._propagate_patch = search
        _replace_in_modules(replaced)


def _replace_in_modules(replacements: _Replacements) -> None:
    """Give every module that holds an old object the new one, except the old one's owner."""
    if not replacements:
        return
    for module in list(sys.modules.values()):
        if not isinstance(module, ModuleType):
            continue
        for name, value in list(vars(module).items()):
            found = replacements.get(id(value))
            if found is not None and module is not found[2]:
                setattr(module, name, found[1])


def _owner(seam: Seam) -> tuple[object, str]:
    path, _, name = seam.target.rpartition(".")
    return pkgutil.resolve_name(path), name


def _own_attribute(seam: Seam) -> object:
    """What the target's owner itself holds; a target that does not exist fails in the ledger."""
    try:
        owner, name = _owner(seam)
    except (ImportError, AttributeError):
        return _ABSENT
    return vars(owner).get(name, _ABSENT)
