"""Memory of the K/V pool: zeros that take no memory until they are written."""

from __future__ import annotations

import psutil
import pytest
import torch


@pytest.fixture(scope="module")
def pools():
    from sglang_ascend.attention import gqa_pool

    return gqa_pool


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_zeros_of_every_kind(pools, dtype):
    with pools.ZerosOnDemand():
        made = torch.zeros((2, 3, 5), dtype=dtype, device="cpu")
        empty = torch.zeros((0, 5), dtype=dtype)
    assert made.shape == (2, 3, 5) and made.dtype == dtype and made.is_contiguous()
    assert not made.any() and empty.shape == (0, 5)
    made[1] = 1
    assert made.sum() == 15


def test_memory_is_taken_when_it_is_written(pools):
    process, mib = psutil.Process(), 2**20
    before = process.memory_info().rss
    with pools.ZerosOnDemand():
        made = torch.zeros((256, mib), dtype=torch.uint8)
    assert process.memory_info().rss - before < 64 * mib
    made[:128] = 1
    assert process.memory_info().rss - before >= 120 * mib


def test_other_zeros_are_left_alone(pools):
    with pools.ZerosOnDemand():
        assert torch.zeros(2, 3).shape == (2, 3)
        assert torch.zeros((2,), requires_grad=True).requires_grad
        assert torch.zeros((2,), device="meta").device.type == "meta"
