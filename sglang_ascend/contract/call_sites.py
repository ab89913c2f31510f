"""Every place in the source that names torch_npu, found in the syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import sglang_ascend

PACKAGE = Path(sglang_ascend.__file__).parent
#: Namespaces of torch_npu's operators, and its Python interface.
_OPERATORS = ("torch.ops.npu", "torch.ops.atb")
_API = ("torch_npu", "torch.npu")
#: A file with none of these has no site; parsing all would take most of the time.
_TRACES = ("npu", "atb", "torch.ops")
#: Names under which an operator could be called without being named.
_HIDING = ("torch.ops", *_OPERATORS)

Kind = Literal["operator", "api", "hidden"]


@dataclass(frozen=True)
class Site:
    """A place that names torch_npu.

    file: relative to the package. kind: "operator" (name is npu::... or atb::...), "api" (name is
    dotted), or "hidden" (the operator that is meant cannot be read off the source).
    """

    file: str
    line: int
    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.name}"


def find(package: Path = PACKAGE) -> list[Site]:
    """All sites below a package, its kernels included (a link, which rglob does not follow)."""
    sites = []
    for path in sorted(package.rglob("*.py")) + sorted((package / "kernels").rglob("*.py")):
        source = path.read_text()
        if any(trace in source for trace in _TRACES):
            sites += in_source(source, str(path.relative_to(package)))
    return sorted(set(sites), key=lambda site: (site.file, site.line, site.name))


def in_source(source: str, file: str) -> Iterator[Site]:
    """The sites of one file."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    modules = _imported(nodes)
    inner = {node.value for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.Call) and (named := _asked_for(node, modules)):
            inner.add(node.args[0])
            site = Site(file, node.lineno, "api", named)
        elif isinstance(node, (ast.Attribute, ast.Name)) and node not in inner:
            site = _classify(_dotted(node, modules), node, file)
        elif isinstance(node, ast.ImportFrom):
            site = _import_from(node, file)
        else:
            site = None
        if site is not None:
            yield site


def _imported(nodes: list[ast.AST]) -> dict[str, str]:
    """Modules by their local names: `import torch as t` makes t stand for torch."""
    return {
        alias.asname or alias.name.partition(".")[0]: alias.name if alias.asname else ""
        for node in nodes
        if isinstance(node, ast.Import)
        for alias in node.names
    }


def _dotted(node: ast.AST, modules: dict[str, str]) -> str:
    """The name of an attribute of an imported module, or nothing."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in modules:
        return ""
    return ".".join([modules[node.id] or node.id, *reversed(parts)])


def _asked_for(node: ast.Call, modules: dict[str, str]) -> str:
    """The operator in `hasattr(torch.ops.npu, "name")`, or nothing."""
    if not (isinstance(node.func, ast.Name) and node.func.id == "hasattr" and len(node.args) == 2):
        return ""
    module, name = _dotted(node.args[0], modules), node.args[1]
    return (
        f"{module}.{name.value}" if module in _OPERATORS and isinstance(name, ast.Constant) else ""
    )


def _classify(dotted: str, node: ast.expr, file: str) -> Site | None:
    for namespace in _OPERATORS:
        if dotted.startswith(f"{namespace}."):
            operator = dotted.removeprefix(f"{namespace}.").split(".")[0]
            name = f"{namespace.rpartition('.')[2]}::{operator}"
            return Site(file, node.lineno, "operator", name)
    if dotted in _HIDING:
        return Site(file, node.lineno, "hidden", dotted)
    if any(dotted.startswith(f"{api}.") for api in _API):
        return Site(file, node.lineno, "api", dotted)
    return None


def _import_from(node: ast.ImportFrom, file: str) -> Site | None:
    module = node.module or ""
    if module == "torch_npu" or module.startswith(("torch_npu.", *_HIDING)):
        return Site(file, node.lineno, "hidden", f"from {module} import ...")
    return None
