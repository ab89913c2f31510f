"""INT8 activations on the wire: how far off they are, and how many bytes they save."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from sglang_ascend.comm.topology import LinkClass
from sglang_ascend.moe.dispatch.quantized_payload import dequantize, pack, unpack
from sglang_ascend.ops.dynamic_quant import dynamic_quant
from tests.moe import dispatch_cases
from tests.moe.dispatch_cases import ROUTINGS, WIDTH, Layer


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    rows=st.lists(
        st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=5, max_size=5),
        min_size=1,
        max_size=4,
    ),
    scale=st.sampled_from([1.0, 1e-30, 1e-3]),
)
def test_no_element_is_off_by_more_than_half_a_step(rows, scale):
    x = torch.tensor(rows) * scale
    q, step = dynamic_quant(x)
    error = (x.double() - q.double() * step.double().unsqueeze(1)).abs()
    # The quotient is rounded to float32 before it is rounded to an integer; scales below the
    # smallest normal number have fewer bits.
    bound = step.double().unsqueeze(1) * (0.5 + 127 * 2**-23) + 127 * 2.0**-149
    assert (error <= bound).all()
    assert int(q.max()) <= 127 and int(q.min()) >= -127
    largest = x.abs().amax(1)
    normal = largest > 127 * 2.0**-126
    assert (q.abs().amax(1)[normal] == 127).all()


def test_a_row_of_zeros_stays_zero():
    q, scale = dynamic_quant(torch.zeros(2, 4))
    assert not q.any() and not scale.any()
    assert torch.equal(
        dequantize(q, scale, torch.bfloat16), torch.zeros(2, 4, dtype=torch.bfloat16)
    )


@pytest.mark.parametrize("counts", [(0,), (1,), (5, 1), (0, 2, 0, 3)])
def test_pack_and_unpack(counts):
    """Odd widths, so that no part after the first one starts where its dtype could be read."""
    torch.manual_seed(0)
    by_rank = [
        [
            torch.randint(-127, 128, (tokens, 7), dtype=torch.int8),
            torch.rand(3, tokens).t(),
            torch.randint(0, 9, (tokens, 3), dtype=torch.int32),
            torch.rand(tokens, 1).bfloat16(),
        ]
        for tokens in counts
    ]
    payload = torch.cat([pack(parts) for parts in by_rank])
    assert payload.shape == (sum(counts), 7 + 12 + 12 + 2)
    joined = [torch.cat(parts) for parts in zip(*by_rank)]
    for got, wanted in zip(unpack(payload, counts, by_rank[0]), joined):
        assert torch.equal(got, wanted) and got.dtype == wanted.dtype


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize(
    ("counts", "shared"), [((4,), 0), ((0, 5), 0), ((3, 0, 1, 8), 0), ((2, 9), 1)]
)
def test_both_transports_compute_with_quantised_rows(ranks, counts, shared, routing):
    layer = Layer(counts, routing, shared_ranks=shared)
    ranks.run(len(counts), dispatch_cases.check, layer, True)


def _bytes(group, layer):
    sent = []
    for transport in dispatch_cases.transports(group, layer, quantized=True)[:2]:
        group.ledger.reset()
        dispatch_cases.run(transport, layer)
        sent.append(
            {op: t.nbytes for (op, link), t in group.ledger.snapshot().items() if link != "local"}
        )
    return sent


def test_bytes_on_the_wire(ranks):
    layer = Layer((5, 3), "one expert", top_k=2)
    gather, dispatch = ranks.run(2, _bytes, layer)[0]
    row = WIDTH + 4
    assert LinkClass.LOCAL == "local"
    assert gather == {"all_gather": 5 * (row + 16), "reduce_scatter": 3 * WIDTH * 4}
    assert dispatch == {"dispatch": 6 * 4 + 5 * row}
