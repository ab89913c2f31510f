"""Permutation, its inverse and the order behind it, run natively against their operators."""

from __future__ import annotations

import pytest
import torch

from sglang_ascend.kernel_proof.comparison import assert_close
from sglang_ascend.kernel_proof.native_run import native_backend
from sglang_ascend.kernels.expert_order import order_pairs_launch
from sglang_ascend.kernels.moe_permute import moe_permute_launch, scatter_rows_launch
from sglang_ascend.kernels.moe_unpermute import moe_unpermute_launch
from sglang_ascend.ops.moe_permute import moe_permute
from sglang_ascend.ops.moe_permute import reference as move
from sglang_ascend.ops.moe_unpermute import moe_unpermute
from sglang_ascend.ops.spec import OperatorError

ON = native_backend("910B")
BF16 = torch.bfloat16

# Every id that a router, a placement or a bug may hand over.
IDS = {
    "random, other ranks and none among them": lambda: torch.randint(-1, 300, (70, 8)),
    "all to one expert": lambda: torch.full((70, 8), 7),
    "nobody's": lambda: torch.full((70, 8), -1),
    "out of range": lambda: torch.tensor([[2**31 - 1, -(2**31), 256, 255, 0, -2, 1000, 16]]),
    "one token": lambda: torch.randint(0, 256, (1, 8)),
    "no tokens": lambda: torch.zeros(0, 8),
    "one choice": lambda: torch.randint(0, 16, (333, 1)),
}


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
@pytest.mark.parametrize(("start", "end"), [(0, 256), (3, 11), (200, 256)])
def test_order(ids, start, end):
    torch.manual_seed(0)
    ids = ids().int()
    row_index, counts = order_pairs_launch(ids, start, end - start, end - start, 0, ON)
    _, want_index, want_counts = move(torch.zeros(ids.shape[0], 1), ids, start, end)
    assert torch.equal(row_index, want_index) and torch.equal(counts.long(), want_counts)
    # Whatever the ids, places are a permutation of the rows that there are.
    placed = row_index[row_index >= 0]
    assert torch.equal(placed.sort().values, torch.arange(int(counts.sum())).int())


def test_order_over_many_experts_and_chunks():
    torch.manual_seed(0)
    ids = torch.randint(-1, 320, (900, 4)).int()
    row_index, counts = order_pairs_launch(ids, 0, 320, 320, 0, ON)
    _, want_index, want_counts = move(torch.zeros(900, 1), ids, 0, 320)
    assert torch.equal(row_index, want_index) and torch.equal(counts.long(), want_counts)


@pytest.mark.parametrize("dtype", [BF16, torch.int8])
@pytest.mark.parametrize(("hidden", "top_k"), [(7168, 8), (32, 2), (1, 1)])
def test_permute_and_back(dtype, hidden, top_k):
    torch.manual_seed(0)
    wide = torch.randn(23, hidden + 8) * 30
    x = wide.to(dtype)[:, 3 : 3 + hidden]
    ids = torch.stack([torch.randperm(20)[:top_k] for _ in range(23)]).int() - 2
    sorted_x, row_index, counts = moe_permute_launch(x, ids, 1, 14, ON)
    want_x, want_index, want_counts = move(x, ids, 1, 14)
    assert torch.equal(row_index, want_index) and torch.equal(counts, want_counts)
    used = int(counts.sum())
    assert torch.equal(sorted_x[:used], want_x[:used])
    untouched = sorted_x[used:]
    assert bool((untouched == 127 if dtype == torch.int8 else untouched.isnan()).all())
    if dtype == BF16:
        # Rows of nobody hold NaN, and must not reach a token.
        weights = torch.randn(23, top_k)
        y = moe_unpermute_launch(sorted_x, row_index, weights, ON)
        assert_close("moe_unpermute", "bf16", y, moe_unpermute(sorted_x, row_index, weights))


def test_an_index_that_is_no_row_moves_nothing():
    x, out = torch.randn(4, 64).to(BF16), torch.full((3, 64), 9.0, dtype=BF16)
    index = torch.tensor([3, -1, 1, 2**31 - 1], dtype=torch.int32)
    scatter_rows_launch(x, index, 1, out, ON)
    assert torch.equal(out[1], x[2]) and bool((out[[0, 2]] == 9).all())
    y = moe_unpermute_launch(out, index, torch.ones(2, 2), ON)
    assert torch.equal(y, torch.stack((torch.zeros(64).to(BF16), out[1])))


def test_infinities_of_a_row_stay_in_its_token():
    rows = torch.ones(3, 64, dtype=BF16)
    rows[1, 5] = float("inf")
    index = torch.tensor([0, 1, 2, 0], dtype=torch.int32)
    y = moe_unpermute_launch(rows, index, torch.ones(2, 2), ON)
    assert bool(y[0, 5].isinf()) and int(y.isfinite().sum()) == 2 * 64 - 1


def test_outside_the_declared_features():
    ids = torch.zeros(2, 2, dtype=torch.int32)
    x = torch.zeros(2, 64, dtype=BF16)
    with pytest.raises(OperatorError, match="missing experts=513; device cpu"):
        moe_permute_launch(x, ids, 0, 513, ON)
    with pytest.raises(OperatorError, match="missing contiguous=False; device cpu"):
        moe_permute_launch(x, ids.t(), 0, 8, ON)
    with pytest.raises(OperatorError, match="ids must be int32, int64, got float32"):
        moe_permute_launch(x, ids.float(), 0, 8, ON)
    with pytest.raises(OperatorError, match="missing dtype=torch.int64; device cpu"):
        moe_permute_launch(x, ids.long(), 0, 8, ON)
    with pytest.raises(OperatorError, match="missing hidden=8200; device cpu"):
        moe_permute_launch(torch.zeros(2, 8200, dtype=BF16), ids, 0, 8, ON)
    with pytest.raises(OperatorError, match="missing weights_dtype=torch.bfloat16; device cpu"):
        moe_unpermute_launch(x, ids.flatten()[:2], torch.ones(2, 1).to(BF16), ON)
    with pytest.raises(OperatorError, match="expert_start must be in 0..expert_end - 1"):
        moe_permute(x, ids, 4, 4)
