"""What is asked of the NPU's dispatch operators is checked against their limits at start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sglang_ascend.errors import ConfigError
from sglang_ascend.moe import npu_dispatch
from sglang_ascend.ops.ep_limits import DispatchCall, violations

#: DeepSeek-V3 on 4 nodes of 8 cards, 8 experts and a redundant one on each.
A2 = DispatchCall("", "", world_size=32, tokens=0, hidden=7168, top_k=8, slots=288)


def test_products():
    assert npu_dispatch.product_of("Ascend910B3") == "A2"
    assert npu_dispatch.product_of("Ascend910_9392") == "A3"
    with pytest.raises(ConfigError, match="Ascend310P.*known are Ascend910B.*allgather"):
        npu_dispatch.product_of("Ascend310P")


@pytest.mark.parametrize("soc", ["Ascend910B3", "Ascend910_9392"])
@pytest.mark.parametrize("buffer_mib", [200, 4096])
def test_capacity_is_the_greatest_number_that_fits(soc, buffer_mib):
    product = npu_dispatch.product_of(soc)
    call = replace(A2, product=product, algorithm="" if product == "A3" else "fullmesh")
    most = npu_dispatch.capacity(call, buffer_mib)
    if most:
        assert not violations(replace(call, tokens=most), buffer_mib)
    assert violations(replace(call, tokens=most + 1), buffer_mib)


def test_a_small_buffer_leaves_allgather(monkeypatch):
    monkeypatch.setenv("HCCL_BUFFSIZE", "1")
    fitted = npu_dispatch.configure("Ascend910B3", 1, A2, forced=False, longest_step=64)
    assert fitted.capacity == 0


def test_forced_dispatch_is_refused_with_the_numbers(monkeypatch):
    monkeypatch.setenv("HCCL_BUFFSIZE", "200")
    with pytest.raises(ConfigError, match="tokens is 4096.*choose AllGather"):
        npu_dispatch.configure("Ascend910B3", 1, A2, forced=True, longest_step=4096)
    with pytest.raises(ConfigError, match="HCCL_BUFFSIZE is 200 MiB, needed are"):
        npu_dispatch.configure("Ascend910B3", 1, A2, forced=True, longest_step=200)


def test_several_nodes_take_the_hierarchical_algorithm(monkeypatch):
    monkeypatch.setenv("HCCL_BUFFSIZE", "8192")
    fitted = npu_dispatch.configure("Ascend910B3", 4, A2, forced=False, longest_step=64)
    assert (fitted.product, fitted.algorithm) == ("A2", "hierarchy") and fitted.capacity > 64


def test_a_buffer_size_that_is_no_number():
    with pytest.raises(ConfigError, match="HCCL_BUFFSIZE 'big' is no number of MiB"):
        npu_dispatch.buffer_size_mib({"HCCL_BUFFSIZE": "big"})
