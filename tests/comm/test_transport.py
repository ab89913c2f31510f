"""Collectives over ragged rows: every element where it belongs, every byte counted."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from sglang_ascend.comm.ledger import ByteLedger, Traffic
from sglang_ascend.comm.topology import LinkClass, Topology
from sglang_ascend.comm.transport import RankGroup, Where
from sglang_ascend.errors import ConfigError

HERE = Where(3, 5, "test")
RAGGED = [[0], [3], [2, 5], [0, 4], [0, 0], [1, 0, 300, 2], [3, 3, 3, 3], [0, 0, 0, 1]]
DTYPES = [torch.float32, torch.bfloat16, torch.int8, torch.int32]
same_on_all = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def _rows(rank: int, count: int, shape=(3,), dtype=torch.float32) -> torch.Tensor:
    """Rows that tell their rank, row and column."""
    row = torch.arange(count).view(-1, *[1] * len(shape))
    column = torch.arange(torch.Size(shape).numel()).view(1, *shape)
    return (rank * 31 + row * 3 + column).remainder(101).to(dtype)


def _padded(group: RankGroup) -> RankGroup:
    """The same group on equal-size collectives, as on HCCL; gloo has them too."""
    other = RankGroup(group.process_group, group.topology)
    other.exact_rows = False
    return other


def _gather(group, counts, shape, dtype, padded):
    chosen = _padded(group) if padded else group
    out = chosen.all_gather_rows(_rows(group.rank, counts[group.rank], shape, dtype), counts, HERE)
    expected = [_rows(rank, count, shape, dtype) for rank, count in enumerate(counts)]
    assert torch.equal(out, torch.cat(expected)) and out.dtype == dtype


@pytest.mark.parametrize("counts", RAGGED)
@pytest.mark.parametrize("padded", [False, True])
def test_gather(ranks, counts, padded):
    for dtype in DTYPES:
        ranks.run(len(counts), _gather, counts, (3,), dtype, padded)
    ranks.run(len(counts), _gather, counts, (2, 5), torch.float32, padded)


def _reduce_scatter(group, counts, dtype, padded):
    chosen = _padded(group) if padded else group
    summand = _rows(group.rank, sum(counts), (4,), dtype)
    out = chosen.reduce_scatter_rows(summand, counts, HERE)
    start = sum(counts[: group.rank])
    total = sum(_rows(rank, sum(counts), (4,)) for rank in range(group.size))
    assert torch.equal(out, total[start : start + counts[group.rank]].to(dtype))


@pytest.mark.parametrize("counts", RAGGED)
@pytest.mark.parametrize("padded", [False, True])
def test_reduce_scatter(ranks, counts, padded):
    ranks.run(len(counts), _reduce_scatter, counts, torch.float32, padded)


def _bfloat16_sum(group):
    """256 + 1 + 1 + ... in bfloat16 stays 256 if each sum is rounded."""
    value = 256.0 if group.rank == 0 else 1.0
    rows = torch.full((group.size, 2), value, dtype=torch.bfloat16)
    out = group.reduce_scatter_rows(rows, [1] * group.size, HERE)
    assert out.flatten().tolist() == [260.0, 260.0]


def test_16_bit_summands_are_added_in_float32(ranks):
    # 256 + 3 = 259, which rounds to 260; rounding each sum would give 256.
    ranks.run(4, _bfloat16_sum)


def _all_to_all(group, counts, width):
    """counts[source][target]; each row tells its source, target and index."""
    send = counts[group.rank]
    receive = [row[group.rank] for row in counts]

    def rows(source, target, count):
        out = torch.full((count, width), 7)
        out[:, 0], out[:, 1], out[:, 2] = source, target, torch.arange(count)
        return out

    x = torch.cat([rows(group.rank, target, count) for target, count in enumerate(send)])
    expected = torch.cat([rows(source, group.rank, count) for source, count in enumerate(receive)])
    window = torch.empty(sum(receive), 8 * width, dtype=torch.uint8)
    for out in (None, window):
        got = group.all_to_all_rows(x, send, receive, HERE, out=out)
        assert torch.equal(got, expected)
    assert got.data_ptr() == window.data_ptr()


@same_on_all
@given(data=st.data(), world=st.sampled_from([1, 2, 4]), width=st.integers(3, 5))
def test_all_to_all(ranks, data, world, width):
    row = st.lists(st.integers(0, 6), min_size=world, max_size=world)
    counts = data.draw(st.lists(row, min_size=world, max_size=world))
    ranks.run(world, _all_to_all, counts, width)


def _bytes(group, padded):
    counts, width_bytes = [1, 0, 3, 2], 8
    chosen = RankGroup(group.process_group, group.topology)
    chosen.exact_rows = not padded
    mine = counts[group.rank]
    chosen.all_gather_rows(torch.zeros(mine, 2), counts, Where(0, 0, "gather"))
    chosen.reduce_scatter_rows(torch.zeros(sum(counts), 2), counts, Where(0, 0, "reduce"))
    sent = chosen.ledger.snapshot()
    peer, far = group.rank ^ 1, [rank for rank in range(4) if rank // 2 != group.rank // 2]
    gathered, reduced = ([3] * 4,) * 2 if padded else ([mine] * 4, counts)

    def traffic(rows, targets):
        sizes = [rows[target] * width_bytes for target in targets if rows[target]]
        return Traffic(sum(sizes), len(sizes))

    for operation, rows in (("gather", gathered), ("reduce", reduced)):
        for link, targets in (
            (LinkClass.LOCAL, [group.rank]),
            (LinkClass.INTRA_NODE, [peer]),
            (LinkClass.INTER_NODE, far),
        ):
            assert sent.get((operation, link), Traffic()) == traffic(rows, targets)


@pytest.mark.parametrize("padded", [False, True])
def test_every_byte_is_counted_by_link(ranks, padded):
    ranks.run(4, _bytes, padded)


def test_ledger_adds_up_and_resets():
    ledger = ByteLedger()
    ledger.record("a", LinkClass.INTRA_NODE, 10)
    ledger.record("a", LinkClass.INTRA_NODE, 5, count=2)
    ledger.record("b", LinkClass.INTRA_NODE, 1)
    snapshot = ledger.snapshot()
    assert snapshot["a", LinkClass.INTRA_NODE] == Traffic(15, 3)
    assert ledger.bytes_by_link()[LinkClass.INTRA_NODE] == 16
    ledger.reset()
    assert snapshot["a", LinkClass.INTRA_NODE].nbytes == 15 and not ledger.snapshot()


def _wrong_topology(group):
    with pytest.raises(ConfigError, match="the group has 2 ranks, the topology 3"):
        RankGroup(group.process_group, Topology(1, 3))


def test_topology_must_fit(ranks):
    ranks.run(2, _wrong_topology)
