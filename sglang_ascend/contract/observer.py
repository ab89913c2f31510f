"""What an NPU call really does: which torch_npu operators, from which line, with whose memory."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import sglang_ascend
from sglang_ascend.contract import call_rules

PACKAGE = Path(sglang_ascend.__file__).parent
_OWN = Path(__file__).parent
_NAMESPACES = ("npu", "atb")


class CallObserver(TorchDispatchMode):
    """Watches the call of one operator.

    calls: [operator, file relative to the package, line] of every torch_npu operator.
    written: names of the operator's arguments whose memory is written, as far as schemas say.
    passed: names of those whose memory reaches a torch_npu operator or is written.
    problems: what no shape function of torch_npu refuses.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__()
        self.calls: list[tuple[str, str, int]] = []
        self.written: set[str] = set()
        self.passed: set[str] = set()
        self.problems: list[str] = []
        self._owner = {
            _memory(value): name
            for name, value in arguments.items()
            if isinstance(value, torch.Tensor)
        }

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        named = {**dict(zip((a.name for a in func._schema.arguments), args)), **kwargs}
        of_npu = func.namespace in _NAMESPACES
        if of_npu:
            self._note(func._schema.name, named)
        for argument in func._schema.arguments:
            written = argument.alias_info is not None and argument.alias_info.is_write
            owners = self._owners(named.get(argument.name)) if of_npu or written else set()
            self.passed |= owners
            if written:
                self.written |= owners
        return func(*args, **kwargs)

    def _note(self, name: str, named: Mapping[str, Any]) -> None:
        self.calls.append((name, *_caller()))
        self.problems += call_rules.problems(name, named)
        for argument, value in named.items():
            for tensor in tree_leaves(value):
                if isinstance(tensor, torch.Tensor) and tensor.device.type != "npu":
                    self.problems.append(f"{name}: {argument} is on {tensor.device}, not on npu")

    def _owners(self, value: Any) -> set[str]:
        memories = (_memory(leaf) for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))
        return {self._owner[memory] for memory in memories if memory in self._owner}


def _caller() -> tuple[str, int]:
    """File, relative to the package, and line of the innermost frame of ours outside this room."""
    frame = sys._getframe(2)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE) and not path.is_relative_to(_OWN):
            return str(path.relative_to(PACKAGE)), frame.f_lineno
        frame = frame.f_back
    return "(outside the package)", 0


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
