"""Places that name torch_npu are found however they are written."""

from __future__ import annotations

import pytest

from sglang_ascend.contract import call_sites


def _found(source: str) -> list[tuple[int, str, str]]:
    return sorted((s.line, s.kind, s.name) for s in call_sites.in_source(source, "x.py"))


@pytest.mark.parametrize(
    ("source", "kind", "name"),
    [
        ("import torch\ntorch.ops.npu.npu_swiglu(x)", "operator", "npu::npu_swiglu"),
        ("import torch\ny = torch.ops.npu.npu_x(a)[0].squeeze(1)", "operator", "npu::npu_x"),
        ("import torch\nf = torch.ops.npu.npu_x.out", "operator", "npu::npu_x"),
        ("import torch as t\nt.ops.atb._npu_ring_mla()", "operator", "atb::_npu_ring_mla"),
        ("import torch_npu\ntorch_npu.npu_swiglu(x)", "api", "torch_npu.npu_swiglu"),
        ("import torch_npu as n\nn.npu.f()", "api", "torch_npu.npu.f"),
        ("import torch\ntorch.npu.synchronize()", "api", "torch.npu.synchronize"),
        ("import torch\nhasattr(torch.ops.npu, 'npu_x')", "api", "torch.ops.npu.npu_x"),
        ("import torch\nhasattr(torch.ops.npu, name)", "hidden", "torch.ops.npu"),
        ("import torch\nnpu = torch.ops.npu", "hidden", "torch.ops.npu"),
        ("import torch\ngetattr(torch.ops, 'npu')", "hidden", "torch.ops"),
        ("import torch\ngetattr(torch.ops.npu, name)(x)", "hidden", "torch.ops.npu"),
        ("\nfrom torch_npu import npu_swiglu", "hidden", "from torch_npu import ..."),
        ("\nfrom torch.ops.npu import f", "hidden", "from torch.ops.npu import ..."),
    ],
)
def test_every_spelling(source, kind, name):
    assert _found(source) == [(2, kind, name)]


def test_what_only_looks_like_one():
    assert _found("import torch\ntorch_npu = 1\ntorch_npu.split\ntorch.ops.aten.add(x)") == []


def test_calls_inside_functions_and_over_several_lines():
    source = (
        "import torch\ndef f(x):\n    return (\n"
        "        torch.ops.npu.npu_a(\n            x\n        )\n"
        "        + torch.ops.npu.npu_b(torch.ops.npu.npu_c(x))\n    )\n"
    )
    assert [name for _, _, name in _found(source)] == ["npu::npu_a", "npu::npu_b", "npu::npu_c"]
    assert [line for line, _, _ in _found(source)] == [4, 7, 7]


def test_the_tree_has_kernels_and_operators():
    sites = call_sites.find()
    files = {site.file for site in sites}
    assert {"ops/rms_norm.py", "plugin/npu_platform.py"} <= files
    assert (call_sites.PACKAGE / "kernels").is_dir()
