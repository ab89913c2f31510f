"""Which configuration a launcher gets, and what is refused before anything runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sglang_ascend.kernels import launching
from sglang_ascend.kernels.launching import Backend, chip_of, choose, npu_backend
from sglang_ascend.kernels.mla_decode import ONLINE_SPEC
from sglang_ascend.kernels.spec import KernelConfig, KernelSpec
from sglang_ascend.ops.spec import NpuLimit, OperatorError
from tests.kernels import small_kernels


def test_only_configurations_that_passed_are_offered():
    assert choose(ONLINE_SPEC, "910B").name == "rows16"
    most = choose(ONLINE_SPEC, "910C", prefer=lambda config: -config.constexprs["ROWS"])
    assert most.name == "rows64"
    unchecked = small_kernels.make(small_kernels.add, block1024=1024)
    with pytest.raises(OperatorError, match="candidates: block1024.*kernel_check --write"):
        choose(unchecked, "910B")


def test_a_row_that_is_gone_is_not_offered(monkeypatch):
    rows = {name: row for name, row in launching._table().items() if "rows16/910B" not in name}
    monkeypatch.setattr(launching, "_table", lambda: rows)
    assert choose(ONLINE_SPEC, "910B").name == "rows16_split"
    assert choose(ONLINE_SPEC, "910C").name == "rows16"


def test_a_configuration_for_another_chip_is_not_offered():
    configs = tuple(replace(config, targets=("910C",)) for config in ONLINE_SPEC.configs)
    with pytest.raises(OperatorError, match="candidates: none"):
        choose(replace(ONLINE_SPEC, configs=configs), "910B")


@pytest.mark.parametrize(
    "device, chip", [("Ascend910B3", "910B"), ("Ascend910B4-1", "910B"), ("Ascend910_9392", "910C")]
)
def test_chips_by_their_device_names(device, chip):
    assert chip_of(device) == chip


@pytest.mark.parametrize("device", ["Ascend310P3", "Ascend910A", "Ascend950"])
def test_a_chip_without_checks_is_refused(device):
    with pytest.raises(OperatorError, match=f"supported 910B, 910C; missing {device}"):
        chip_of(device)


def test_a_tensor_that_is_not_on_an_npu_is_refused():
    with pytest.raises(OperatorError, match="missing npu; device cpu"):
        npu_backend(torch.zeros(1))


def test_a_tensor_on_another_device_than_the_backend_is_refused():
    spec = small_kernels.make(small_kernels.add, block64=64)
    backend = Backend("npu", "910B", run=lambda *arguments: pytest.fail("it ran"))
    with pytest.raises(OperatorError, match="missing it for a tensor on cpu; device npu"):
        backend.launch(spec, spec.configs[0], (1,), torch.zeros(1))


def test_features_name_what_is_required_supported_and_missing():
    spec = replace(
        small_kernels.make(small_kernels.add, block64=64),
        features={"length": NpuLimit("", maximum=64), "rows": NpuLimit("", multiple_of=16)},
    )
    spec.require("npu", length=64, rows=32)
    with pytest.raises(OperatorError) as error:
        spec.require("npu", length=65, rows=32)
    assert str(error.value) == (
        "add: required length=65, rows=32; supported length at most 64, rows a multiple of 16;"
        " missing length=65; device npu"
    )
    with pytest.raises(OperatorError, match="missing causal=True"):
        spec.require("npu", causal=True)


def test_a_spec_that_does_not_fit_its_kernel_is_refused():
    good = small_kernels.make(small_kernels.add, block64=64)
    with pytest.raises(OperatorError, match="signature and constexprs name"):
        replace(good, configs=(KernelConfig("other", {"TILE": 64}),))
    with pytest.raises(OperatorError, match="takes, in this order, x_ptr, y_ptr, out_ptr, length"):
        replace(good, signature=dict(reversed(good.signature.items())))
    with pytest.raises(OperatorError, match="different names"):
        replace(good, configs=good.configs * 2)
    with pytest.raises(OperatorError, match="has no configuration 'x'; it has: block64"):
        good.config("x")
    assert isinstance(good, KernelSpec)
