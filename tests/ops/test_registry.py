"""Every operator has all its parts, and the package imports nothing before it is asked."""

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import sglang_ascend.ops as ops
from sglang_ascend.ops.spec import Operator

ROOM = Path(ops.__file__).parent
PARTS = {"SPEC", "reference", "npu", "CONTRACT"}


def _top_level_names(path: Path) -> set[str]:
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.FunctionDef):
            names.add(node.name)
    return names


def test_every_file_with_a_part_of_an_operator_is_registered_and_complete():
    with_parts = {
        path.stem: _top_level_names(path)
        for path in ROOM.glob("*.py")
        if PARTS & _top_level_names(path)
    }
    assert sorted(with_parts) == sorted(ops.OPERATOR_MODULES)
    missing = {
        name: sorted((PARTS | {name}) - names)
        for name, names in with_parts.items()
        if not PARTS | {name} <= names
    }
    assert not missing


def test_importing_the_package_imports_no_torch():
    code = "import sys, sglang_ascend.ops; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ops.OPERATOR_MODULES)
def test_operator(name):
    operator = ops.load_all()[name]
    spec = operator.spec
    assert isinstance(operator, Operator)
    assert spec.name == name
    assert spec.summary and spec.source and spec.tolerance.reason
    assert set(spec.mutates) <= set(spec.inputs)

    reference = inspect.signature(operator.reference).parameters
    assert list(inspect.signature(operator.npu).parameters) == list(reference)
    assert set(spec.inputs) <= set(reference)
    assert inspect.getdoc(operator.reference)

    # The torch_npu operators that the file names are the ones that it declares.
    called = set(
        re.findall(
            r"torch\.ops\.npu\.(\w+)", inspect.getsource(sys.modules[operator.npu.__module__])
        )
    )
    assert {f"npu::{call}" for call in called} == set(spec.npu_operators)


@pytest.mark.parametrize("name", ops.OPERATOR_MODULES)
def test_contract_cases_fit_the_specification(name):
    operator = ops.load_all()[name]
    assert operator.contract
    labels = [case.label for case in operator.contract]
    assert len(set(labels)) == len(labels)
    # Values of meta tensors cannot be looked at.
    shapes_only = dataclasses.replace(operator.spec, values=None)
    for case in operator.contract:
        arguments = case.build(torch.device("meta"), case.dtype)
        bound = inspect.signature(operator.reference).bind(**arguments)
        bound.apply_defaults()
        shapes_only.check_inputs(bound.arguments)
