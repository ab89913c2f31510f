"""All calls that are under contract: of the operators' own files, recorded, and computed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from sglang_ascend.contract import deployments
from sglang_ascend.ops import load_all
from sglang_ascend.ops.call_shapes import build
from sglang_ascend.ops.spec import Operator

RECORDED = Path(__file__).parent / "recorded"
Origin = Literal["operator file", "recorded", "computed"]


@dataclass(frozen=True)
class Case:
    """One call. build: its arguments by name, on a device."""

    operator: str
    label: str
    origin: Origin
    build: Callable[[torch.device], dict[str, Any]]


def load(operators: dict[str, Operator] | None = None) -> list[Case]:
    """Every case, in an order that is the same in every process."""
    operators = load_all() if operators is None else operators
    found = [case for name, operator in operators.items() for case in _own(name, operator)]
    found += _recorded()
    found += [Case(name, label, "computed", make) for name, label, make in deployments.cases()]
    return [case for case in found if case.operator in operators]


def _own(name: str, operator: Operator) -> Iterator[Case]:
    for case in operator.contract:
        yield Case(name, case.label, "operator file", partial(case.build, dtype=case.dtype))


def _recorded() -> Iterator[Case]:
    for path in sorted(RECORDED.glob("*.json")):
        for number, call in enumerate(json.loads(path.read_text())):
            label = f"{path.stem}, recorded call {number}"
            make = partial(_build, call["arguments"])
            yield Case(call["operator"], label, "recorded", make)


def _build(arguments: dict[str, Any], device: torch.device) -> dict[str, Any]:
    return {name: build(value, device) for name, value in arguments.items()}
