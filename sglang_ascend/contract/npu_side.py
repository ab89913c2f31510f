"""The process in which torch_npu is loaded: makes every call on fake npu tensors, prints nothing.

Started by `check.py` as `python -m sglang_ascend.contract.npu_side RESULT_FILE [OPERATOR...]` with
the stand-ins for CANN's libraries on the library path.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
import sys
from pathlib import Path
from typing import Any

import torch
import torch_npu  # noqa: F401  registers the device and its operators
from torch._subclasses.fake_tensor import FakeTensorMode

from sglang_ascend.contract import api, helpers, outcome
from sglang_ascend.contract.cases import Case, load
from sglang_ascend.contract.observer import CallObserver
from sglang_ascend.contract.wrong_calls import wrong_calls
from sglang_ascend.ops import load_all
from sglang_ascend.ops.spec import Operator, OperatorError

NPU = torch.device("npu", 0)
#: What reading a value of a fake tensor raises: on the chip the host would wait for it.
_LOOKS_AT_VALUES = ("DataDependentOutputException", "DynamicOutputShapeException")


class _NpuMode(FakeTensorMode):
    """Fake tensors of which no value is ever known, not even of one that was a number just now."""

    def may_turn_const(self, t: torch.Tensor) -> bool:
        return False


def fake_mode() -> FakeTensorMode:
    """The one mode of a process: its fake tensors do not mix with those of another."""
    # It logs a traceback for every call that it refuses, and refusing is what is asked of it here.
    logging.getLogger("torch._subclasses.fake_tensor").disabled = True
    return _NpuMode()


def run_case(case: Case, operator: Operator, mode: FakeTensorMode) -> dict[str, Any]:
    """Make one call; say what came of it (`outputs` or `error`, `calls`, `problems`)."""
    with mode, torch.no_grad():
        observer = CallObserver({})
        try:
            arguments = case.build(NPU)
            observer = CallObserver(arguments)
            with observer:
                results = operator.npu(**arguments)
        except Exception as error:
            return {"error": _one_line(error), "calls": observer.calls}
        problems = [*observer.problems, *_memory_problems(operator, observer)]
        return {
            "outputs": outcome.describe(outcome.comparable(operator.spec, results), arguments),
            "calls": observer.calls,
            "problems": problems,
        }


def _memory_problems(operator: Operator, observer: CallObserver) -> list[str]:
    mutates = set(operator.spec.mutates)
    lost = sorted(mutates - observer.passed)
    undeclared = sorted(observer.written - mutates)
    return [f"{name} is to be written, but only a copy of it is" for name in lost] + [
        f"{name} is written, and SPEC.mutates does not say so" for name in undeclared
    ]


def refusals(case: Case, operator: Operator, mode: FakeTensorMode) -> list[dict[str, Any]]:
    """For each mistake in a call: does the specification refuse it, and who does on the NPU."""
    signature = inspect.signature(operator.reference)
    required = tuple(
        name for name, p in signature.parameters.items() if p.default is inspect.Parameter.empty
    )
    with mode, torch.no_grad():
        wrong = list(wrong_calls(operator.spec, case.build(NPU), required))
        return [
            {
                "mistake": call.mistake,
                "specification": _refused_by_specification(operator, signature, call.arguments),
                "npu": _refused_by_npu(operator, call.arguments),
            }
            for call in wrong
        ]


def _refused_by_specification(operator, signature, arguments) -> bool:
    shapes_only = dataclasses.replace(operator.spec, values=None)
    try:
        bound = signature.bind(**arguments)
        bound.apply_defaults()
        shapes_only.check_inputs(bound.arguments)
        if operator.spec.values is not None:
            operator.spec.values(bound.arguments)
    except (OperatorError, TypeError):
        return True
    except Exception as error:
        if type(error).__name__ not in _LOOKS_AT_VALUES:
            raise
    return False


def _refused_by_npu(operator, arguments) -> str | None:
    try:
        operator.npu(**arguments)
    except OperatorError:
        return "the operator's own check"
    except Exception as error:
        return "torch_npu" if isinstance(error, RuntimeError) else "an error of Python"
    return None


def _one_line(error: Exception) -> str:
    name = type(error).__name__
    if name in _LOOKS_AT_VALUES:
        return f"{name}: the host reads a value of an npu tensor, and would wait for the chip"
    return f"{name}: {' '.join(str(error).split())[:400]}"


def main(result_file: str, *only: str) -> None:
    operators = {name: op for name, op in load_all().items() if not only or name in only}
    mode = fake_mode()
    helpers.define_missing_shapes()
    results, refused = [], []
    for case in load(operators):
        operator = operators[case.operator]
        results.append(
            {"operator": case.operator, "label": case.label, **run_case(case, operator, mode)}
        )
        if case.origin == "operator file" and "error" not in results[-1]:
            rows = refusals(case, operator, mode)
            refused += [{"operator": case.operator, "label": case.label, **row} for row in rows]
    report = {
        "soc": torch.npu.get_device_name(0),
        "results": results,
        "refusals": refused,
        "helpers": [] if only else helpers.run(mode, NPU),
        "api": api.unresolved(),
    }
    Path(result_file).write_text(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
