"""The grouped INT8 product, run natively against its operators."""

from __future__ import annotations

import pytest
import torch

from sglang_ascend.kernel_proof.comparison import assert_close
from sglang_ascend.kernel_proof.native_run import native_backend
from sglang_ascend.kernels.quant_grouped_matmul import (
    SPEC,
    quant_grouped_matmul_launch,
    quant_matmul_launch,
)
from sglang_ascend.ops.quant_grouped_matmul import quant_grouped_matmul
from sglang_ascend.ops.quant_matmul import quant_matmul
from sglang_ascend.ops.spec import OperatorError
from tests.kernels.recording import Recorder

ON = native_backend("910B")
BF16 = torch.bfloat16


def integers(*shape: int) -> torch.Tensor:
    return torch.randint(-128, 128, shape, dtype=torch.int8)


def check(counts: list[int], spare: int, k: int, n: int, transposed: bool, on=ON):
    """`spare` rows behind the last expert's must stay unread and unwritten."""
    torch.manual_seed(0)
    experts, rows = len(counts), sum(counts) + spare
    x, x_scale = integers(rows, k), torch.rand(rows) / 100
    x_scale[rows - spare :] = float("nan")
    weights = integers(experts, n, k).transpose(1, 2) if transposed else integers(experts, k, n)
    arguments = x, x_scale, weights, torch.rand(experts, n), torch.tensor(counts), BF16
    y = quant_grouped_matmul_launch(*arguments, on)
    want = quant_grouped_matmul(*arguments)
    used = rows - spare
    assert_close(SPEC.name, "bf16", y[:used], want[:used])
    assert bool(y[used:].isnan().all())


@pytest.mark.parametrize(
    ("counts", "spare", "config"),
    [
        ([5, 0, 9, 1], 3, "16x256x256"),
        ([0, 0, 0], 4, "16x256x256"),
        ([90], 6, "128x128x256"),
        ([0, 61, 0], 0, "32x256x256"),
        ([64, 65, 1], 2, "64x128x256"),
    ],
)
@pytest.mark.parametrize(("k", "n", "transposed"), [(300, 130, False), (256, 257, True)])
def test_groups(counts, spare, config, k, n, transposed):
    recorder = Recorder()
    check(counts, spare, k, n, transposed, recorder.backend)
    assert recorder.ran == [f"{SPEC.name}/{config}"]


def test_more_tiles_than_programs():
    check([17] * 9, 0, 64, 1000, False)


def test_sums_that_only_integers_hold():
    """7168 products of extremes exceed 2**24, where float32 sums would round."""
    x = torch.full((2, 7168), -128, dtype=torch.int8)
    weights = torch.full((1, 7168, 8), -128, dtype=torch.int8)
    x[1, 0] = weights[0, 1, 3] = 127
    ones, counts = torch.ones(2), torch.tensor([2])
    scale = torch.full((1, 8), 2.0**-20)
    y = quant_grouped_matmul_launch(x, ones, weights, scale, counts, BF16, ON)
    assert torch.equal(y, quant_grouped_matmul(x, ones, weights, scale, counts, BF16))
    exact = (x.double() @ weights[0].double() * 2.0**-20).to(BF16)
    assert torch.equal(y, exact)


@pytest.mark.parametrize("counts", [[7, 2**31 - 1], [-5, 2**31 - 1], [2**31 - 1, 2**31 - 1]])
def test_counts_that_cannot_be_write_nothing_outside(counts):
    arguments = integers(10, 64), torch.ones(10), integers(2, 64, 32), torch.ones(2, 32)
    y = quant_grouped_matmul_launch(*arguments, torch.tensor(counts), BF16, ON)
    assert bool(y.isfinite().all())


def test_dense():
    torch.manual_seed(0)
    arguments = integers(20, 1536), torch.rand(20), integers(1536, 96), torch.rand(96), BF16
    y = quant_matmul_launch(*arguments, ON)
    assert_close(SPEC.name, "bf16", y, quant_matmul(*arguments))
    assert quant_matmul_launch(*(a[:0] for a in arguments[:2]), *arguments[2:], ON).shape == (0, 96)


def test_outside_the_declared_features():
    good = (integers(4, 64), torch.ones(4), integers(2, 64, 32), torch.ones(2, 32))
    counts = torch.tensor([2, 2])
    with pytest.raises(OperatorError, match="missing dtype=torch.float16; device cpu"):
        quant_grouped_matmul_launch(*good, counts, torch.float16, ON)
    with pytest.raises(OperatorError, match="weights must be int8, got bfloat16"):
        quant_grouped_matmul_launch(*good[:2], good[2].to(BF16), good[3], counts, BF16, ON)
    with pytest.raises(OperatorError, match=r"weight_scale axis 1 \(out\) must be 32"):
        quant_grouped_matmul_launch(*good[:3], torch.ones(2, 31), counts, BF16, ON)
    with pytest.raises(OperatorError, match="missing contiguous=False; device cpu"):
        quant_grouped_matmul_launch(integers(64, 4).t(), *good[1:], counts, BF16, ON)
