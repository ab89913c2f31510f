"""Packing into windows and unpacking, run natively against their operators, and end to end."""

from __future__ import annotations

import pytest
import torch

from sglang_ascend.kernel_proof.native_run import native_backend
from sglang_ascend.kernels.dispatch_pack import dispatch_pack_launch
from sglang_ascend.kernels.dispatch_unpack import dispatch_unpack_launch
from sglang_ascend.kernels.moe_unpermute import moe_unpermute_launch
from sglang_ascend.ops.dispatch_pack import dispatch_pack, packed_width
from sglang_ascend.ops.dispatch_unpack import dispatch_unpack
from sglang_ascend.ops.dynamic_quant import dynamic_quant
from sglang_ascend.ops.spec import OperatorError

ON = native_backend("910C")
BF16, INT8 = torch.bfloat16, torch.int8


def distinct_ids(tokens: int, top_k: int, slots: int, skipped: float = 0.2) -> torch.Tensor:
    ids = torch.rand(tokens, slots).argsort(1)[:, :top_k].int()
    return ids.masked_fill(torch.rand(tokens, top_k) < skipped, -1)


def rows_of(tokens: int, hidden: int, dtype: torch.dtype):
    """Rows and their scale, rows strided inside a wider tensor."""
    x = torch.randn(tokens, hidden).to(BF16)
    values, scale = dynamic_quant(x) if dtype == INT8 else (x, None)
    wide = torch.zeros(tokens, hidden + 32, dtype=dtype)
    wide[:, :hidden] = values
    return wide[:, :hidden], scale


CASES = {
    "random": (19, 8, 32, 4, lambda t, k, s: distinct_ids(t, k, s)),
    "one rank gets all": (9, 4, 8, 8, lambda t, k, s: distinct_ids(t, k, 8, 0.0) + 16),
    "one slot gets all": (9, 1, 8, 4, lambda t, k, s: torch.full((t, k), 13).int()),
    "nobody": (5, 2, 4, 2, lambda t, k, s: torch.full((t, k), -1).int()),
    "ids that are no slots": (
        4, 2, 2, 3,
        lambda t, k, s: torch.tensor([[6, -7], [2**31 - 1, 0], [5, 6], [-(2**31), 1]]).int(),
    ),
    "no tokens": (0, 8, 4, 4, lambda t, k, s: torch.zeros(0, k).int()),
    "many slots": (40, 8, 16, 20, lambda t, k, s: distinct_ids(t, k, s)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [BF16, INT8])
@pytest.mark.parametrize(("tokens", "top_k", "ranks", "slots", "ids"), CASES.values(), ids=CASES)
def test_pack_and_unpack(tokens, top_k, ranks, slots, ids, dtype):
    torch.manual_seed(0)
    hidden = 96
    ids = ids(tokens, top_k, ranks * slots)
    x, scale = rows_of(tokens, hidden, dtype)
    capacity = tokens * min(top_k, slots) + 3
    shape = ranks, slots, capacity
    windows, counts, row_index = dispatch_pack_launch(x, scale, ids, *shape, ON)
    want_windows, want_counts, want_index = dispatch_pack(x, scale, ids, *shape)
    assert torch.equal(counts, want_counts) and torch.equal(row_index, want_index)
    packed = hidden + 4 if dtype == INT8 else hidden
    for window, want, used in zip(windows, want_windows, counts.sum(1).tolist()):
        assert torch.equal(window[:used, :packed], want[:used, :packed])
        rest = window[used:]
        assert bool((rest == 127 if dtype == INT8 else rest.isnan()).all())

    # What one rank would receive if all ranks had sent these windows.
    got = dispatch_unpack_launch(windows, counts, hidden, ON)
    want = dispatch_unpack(want_windows, counts, hidden)
    used = int(counts.sum())
    assert torch.equal(got[2], want[2]) and torch.equal(got[3], want[3])
    assert torch.equal(got[0][:used], want[0][:used])
    if dtype == INT8:
        assert torch.equal(got[1][:used], want[1][:used])


def test_a_row_of_deepseek_v3_is_7680_bytes():
    assert packed_width(7168) == 7680
    x, scale = rows_of(3, 7168, INT8)
    ids = torch.tensor([[0, 5], [7, 2], [1, 6]], dtype=torch.int32)
    windows, counts, row_index = dispatch_pack_launch(x, scale, ids, 2, 4, 6, ON)
    assert windows.shape == (2, 6, 7680) and counts.tolist() == [[1, 1, 1, 0], [0, 1, 1, 1]]
    assert row_index.tolist() == [0, 6, 8, 2, 1, 7]
    rows, scales, tokens_per_expert, _ = dispatch_unpack_launch(windows, counts, 7168, ON)
    assert tokens_per_expert.tolist() == [1, 2, 2, 1]
    order = [0, 2, 0, 1, 2, 1]
    assert torch.equal(rows[:6], x[order]) and torch.equal(scales[:6], scale[order])


@pytest.mark.parametrize("skewed", [False, True])
def test_there_and_back_between_ranks(skewed):
    """Every rank packs, windows change hands, experts work, windows go back, tokens are whole."""
    torch.manual_seed(0)
    ranks, slots, top_k, hidden, tokens = 3, 4, 3, 64, [5, 0, 7]
    capacity = max(tokens) * top_k
    sent = []
    for count in tokens:
        ids = distinct_ids(count, top_k, slots if skewed else ranks * slots)
        x, _ = rows_of(count, hidden, BF16)
        weights = torch.rand(count, top_k)
        packed = dispatch_pack_launch(x, None, ids, ranks, slots, capacity, ON)
        sent.append((x, ids, weights, *packed))

    returned = [torch.empty(ranks, capacity, hidden, dtype=BF16) for _ in range(ranks)]
    for rank in range(ranks):
        windows = torch.stack([entry[3][rank] for entry in sent])
        counts = torch.stack([entry[4][rank] for entry in sent])
        rows, _, per_expert, index = dispatch_unpack_launch(windows, counts, hidden, ON)
        # Each expert multiplies by a number of its own.
        factor = torch.arange(slots).repeat_interleave(per_expert) + rank * slots + 1
        done = torch.zeros_like(rows)
        done[: len(factor)] = rows[: len(factor)] * factor.to(BF16).unsqueeze(1)
        # The way back is a combination of one choice of weight 1.
        back = moe_unpermute_launch(done, index, torch.ones(len(index), 1), ON)
        for source in range(ranks):
            returned[source][rank] = back.view(ranks, capacity, hidden)[source]

    for (x, ids, weights, _, _, row_index), windows in zip(sent, returned):
        y = moe_unpermute_launch(windows.view(-1, hidden), row_index, weights, ON)
        factors = ((ids + 1).clamp_min(0) * weights).sum(1, keepdim=True)
        torch.testing.assert_close(y.float(), x.float() * factors, rtol=2**-6, atol=2**-6)


@pytest.mark.parametrize("lie", [2**31 - 1, 9, -(2**31), -1])
def test_counts_that_cannot_be_write_nothing_outside(lie):
    windows = torch.ones(3, 8, 64, dtype=BF16)
    counts = torch.tensor([[2, 3], [lie, 4], [lie, lie]], dtype=torch.int32)
    rows, _, _, index = dispatch_unpack_launch(windows, counts, 64, ON)
    assert bool((index >= -1).all()) and bool((index < 24).all())
    assert index[:5].tolist()[:2] == [0, 1] and bool((rows[:2] == 1).all())


def test_outside_the_declared_features():
    x, scale = rows_of(4, 96, INT8)
    ids = torch.zeros(4, 2, dtype=torch.int32)
    with pytest.raises(OperatorError, match="INT8 rows need x_scale .* x_scale missing"):
        dispatch_pack_launch(x, None, ids, 2, 4, 8, ON)
    with pytest.raises(OperatorError, match="capacity must be at least 8, .* got 7"):
        dispatch_pack_launch(x, scale, ids, 2, 4, 7, ON)
    with pytest.raises(OperatorError, match="missing hidden_bytes=66; device cpu"):
        dispatch_pack_launch(torch.zeros(4, 33, dtype=BF16), None, ids, 2, 4, 8, ON)
    with pytest.raises(OperatorError, match="missing element_stride=3; device cpu"):
        dispatch_pack_launch(x, torch.ones(4, 3)[:, 0], ids, 2, 4, 8, ON)
    with pytest.raises(OperatorError, match="missing experts=1024; device cpu"):
        dispatch_pack_launch(x, scale, ids, 32, 32, 8, ON)
    with pytest.raises(OperatorError, match="missing rows=20971520; device cpu"):
        dispatch_pack_launch(x, scale, ids, 2, 4, 10 * 2**20, ON)
    windows = torch.zeros(2, 8, 96, dtype=INT8)
    with pytest.raises(OperatorError, match="windows axis 2 must be 512 for rows of 96"):
        dispatch_unpack_launch(windows, torch.zeros(2, 4, dtype=torch.int32), 96, ON)
    with pytest.raises(OperatorError, match="missing segments=514; device cpu"):
        dispatch_unpack_launch(
            windows.view(2, 3, 256).to(BF16), torch.zeros(2, 257, dtype=torch.int32), 256, ON
        )
