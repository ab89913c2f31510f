"""Windows of dispatch: every pair arrives once, where its index says, and nothing else does."""

from __future__ import annotations

import pytest
import torch

from sglang_ascend.ops.dispatch_pack import dispatch_pack, packed_width
from sglang_ascend.ops.dispatch_unpack import dispatch_unpack
from sglang_ascend.ops.spec import OperatorError

INT8 = torch.int8


def rows_of(tokens: int, hidden: int, dtype: torch.dtype):
    """Rows of which each is told by its first value, and scales that are told as well."""
    if dtype != INT8:
        return torch.arange(1, tokens + 1.0)[:, None].expand(tokens, hidden).to(dtype), None
    x = torch.arange(tokens, dtype=INT8)[:, None].expand(tokens, hidden).contiguous()
    return x, torch.arange(tokens) + 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, INT8])
@pytest.mark.parametrize(
    ("tokens", "ranks", "slots"), [(9, 4, 2), (1, 1, 1), (0, 3, 4), (20, 2, 9)]
)
def test_pairs_go_to_their_rank_by_slot_and_token(tokens, ranks, slots, dtype):
    torch.manual_seed(0)
    top_k = min(3, ranks * slots)
    ids = torch.rand(tokens, ranks * slots).argsort(1)[:, :top_k].int()
    ids = ids.masked_fill(torch.rand(tokens, top_k) < 0.3, -1)
    x, scale = rows_of(tokens, 32, dtype)
    capacity = tokens * min(top_k, slots) + 1
    windows, counts, row_index = dispatch_pack(x, scale, ids, ranks, slots, capacity)
    pairs = [(int(s), t, t * top_k + k) for t, row in enumerate(ids) for k, s in enumerate(row)]
    for rank in range(ranks):
        mine = sorted(pair for pair in pairs if pair[0] // slots == rank)
        expected = torch.tensor([token for _, token, _ in mine], dtype=torch.int64)
        assert torch.equal(windows[rank, : len(mine), :32], x[expected])
        if scale is not None:
            written = windows[rank, : len(mine), 32:36].contiguous().view(torch.float32)
            assert torch.equal(written.flatten(), scale[expected])
        assert counts[rank].tolist() == [
            sum(slot == rank * slots + local for slot, _, _ in mine) for local in range(slots)
        ]
        assert [int(row_index[pair]) for _, _, pair in mine] == [
            rank * capacity + place for place in range(len(mine))
        ]
    assert int((row_index >= 0).sum()) == int(counts.sum()) == int((ids >= 0).sum())

    rows, scales, per_expert, window_index = dispatch_unpack(windows, counts, 32)
    used = int(counts.sum())
    assert torch.equal(per_expert, counts.sum(0).long())
    assert torch.equal(window_index[window_index >= 0].sort().values, torch.arange(used).int())
    received = windows.view(-1, windows.shape[2])
    slot_of = torch.arange(slots).repeat_interleave(per_expert)
    for place, row in enumerate(window_index.tolist()):
        rank, position = divmod(place, capacity)
        assert (row >= 0) == (position < int(counts[rank].sum()))
        if row >= 0:
            assert torch.equal(rows[row], received[place, :32])
            below = int(counts[rank, : int(slot_of[row])].sum())
            assert below <= position < below + int(counts[rank, int(slot_of[row])])
            if scales is not None:
                assert float(scales[row]) == received[place, 32:36].contiguous().view(torch.float32)


def test_the_width_of_a_packed_row():
    assert [packed_width(hidden) for hidden in (32, 508, 509, 7168)] == [512, 512, 1024, 7680]


def test_wrong_arguments():
    x, ids = torch.zeros(2, 32), torch.zeros(2, 1, dtype=torch.int32)
    with pytest.raises(OperatorError, match="x_scale given"):
        dispatch_pack(x, torch.ones(2), ids, 2, 2, 2)
    with pytest.raises(OperatorError, match="INT8 rows need x_scale"):
        dispatch_pack(x.to(INT8), None, ids, 2, 2, 2)
    with pytest.raises(OperatorError, match="ranks and slots_per_rank must be at least 1, got 0"):
        dispatch_pack(x, None, ids, 0, 2, 2)
    with pytest.raises(OperatorError, match="capacity must be at least 2, .* got 1"):
        dispatch_pack(x, None, ids, 2, 2, 1)
    windows = torch.zeros(2, 3, 32)
    with pytest.raises(OperatorError, match="at most 3 rows a window, got sums up to 4"):
        dispatch_unpack(windows, torch.tensor([[4], [0]], dtype=torch.int32), 32)
    with pytest.raises(OperatorError, match="windows axis 2 must be 33 for rows of 33"):
        dispatch_unpack(windows, torch.zeros(2, 1, dtype=torch.int32), 33)
