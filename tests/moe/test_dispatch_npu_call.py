"""NPU calls of Dispatch/Combine, on the documented meaning of the operators, over real ranks."""

from __future__ import annotations

import pytest
import torch

from sglang_ascend.ops.contract_group import StandInGroup
from sglang_ascend.ops.expert_parallel import ExpertParallel, npu_tokens
from sglang_ascend.ops.moe_distribute_combine import moe_distribute_combine
from sglang_ascend.ops.moe_distribute_dispatch import moe_distribute_dispatch
from sglang_ascend.ops.spec import OperatorError
from tests.moe.dispatch_cases import ROUTINGS, Where
from tests.moe.npu_dispatch_semantics import Semantics

HIDDEN = 1024


class _Named:
    """The ranks with the name that their communicator has on an NPU."""

    hccl_name = Semantics.NAME

    def __init__(self, group):
        self.rank, self.size, self.all_to_all_rows = group.rank, group.size, group.all_to_all_rows


def _compare(group, counts, routing, product, algorithm, shared_ranks, quantized):
    ep = ExpertParallel(_Named(group), 12, shared_ranks, product, algorithm)
    torch.manual_seed(group.rank)
    tokens, top_k = counts[group.rank], 3
    x = torch.randn(tokens, HIDDEN).bfloat16()
    ids = ROUTINGS[routing](tokens, top_k, 12).int()
    weights = torch.rand(tokens, top_k).masked_fill(ids < 0, float("nan"))
    where = Where(0, 0, "test")
    with torch.library._scoped_library("npu", "FRAGMENT") as library:
        Semantics(group, product).define(library)
        results = []
        for dispatch, combine in (
            (moe_distribute_dispatch.reference, moe_distribute_combine.reference),
            (moe_distribute_dispatch.npu, moe_distribute_combine.npu),
        ):
            rows, scales, per_expert, state = dispatch(
                x, ids, weights, ep, counts, quantized, where
            )
            out = rows.bfloat16() if scales is None else (rows * scales.unsqueeze(1)).bfloat16()
            y = combine(out, ids, weights, state, ep, counts, where)
            results.append((rows, scales, per_expert, y))
    (rows, scales, per_expert, y), (npu_rows, npu_scales, npu_per_expert, npu_y) = results
    assert npu_rows.shape == rows.shape and npu_rows.dtype == rows.dtype
    assert y.shape == npu_y.shape == x.shape
    assert torch.equal(per_expert, npu_per_expert)
    used = int(per_expert.sum())
    step = 1.0 if quantized else 0.0
    torch.testing.assert_close(npu_rows[:used].float(), rows[:used].float(), rtol=0, atol=step)
    if quantized:
        torch.testing.assert_close(npu_scales[:used], scales[:used])
    # The same rows and weights; float32 sums in another order, rounded once; a quantised element
    # may be a step off.
    tolerance = 2**-5 if quantized else 2**-7
    torch.testing.assert_close(npu_y.float(), y.float(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize(
    ("product", "algorithm", "shared_ranks", "routings"),
    [
        ("A3", "", 0, ["balanced", "with gaps", "one expert", "none"]),
        ("A3", "", 1, ["balanced", "skewed"]),
        ("A2", "fullmesh", 0, ["balanced", "skewed"]),
    ],
)
def test_npu_call_equals_reference(ranks, product, algorithm, shared_ranks, routings, quantized):
    for counts in ((3, 0), (2, 2), (0, 1, 5, 2)):
        for routing in routings:
            ranks.run(
                len(counts), _compare, counts, routing, product, algorithm, shared_ranks, quantized
            )


@pytest.mark.parametrize("tokens", [0, 2])
def test_without_a_mask_every_rank_sends_what_it_has(tokens):
    """The hierarchical algorithm of A2; an empty rank sends a token whose result nobody reads."""
    ep = ExpertParallel(StandInGroup(0, 16), 32, product="A2", algorithm="hierarchy")
    x, weights = torch.ones(tokens, 4), torch.ones(tokens, 3)
    ids = torch.full((tokens, 3), 5, dtype=torch.int32)
    sent, sent_ids, sent_weights, mask = npu_tokens(x, ids, weights, ep, longest=9)
    assert mask is None and len(sent) == len(sent_ids) == len(sent_weights) == max(tokens, 1)
    if tokens:
        assert sent is x and sent_ids is ids and sent_weights is weights
    else:
        assert sent_ids.tolist() == [[0, 1, 2]] and not sent.any() and not sent_weights.any()


@pytest.mark.parametrize(
    ("product", "dtype", "counts", "message"),
    [
        ("A3", torch.float32, (1, 1), "dtype is torch.float32, allowed is bfloat16 or float16"),
        ("A3", torch.bfloat16, (1, 600), "tokens is 600, allowed is 1..512"),
        ("", torch.bfloat16, (1, 1), "product and algorithm are '' ''"),
        ("A3", torch.bfloat16, (2, 1), "token_counts must be 2 numbers with 1 tokens for rank 0"),
    ],
)
@pytest.mark.parametrize("operator", [moe_distribute_dispatch, moe_distribute_combine])
def test_the_npu_call_checks_first(operator, product, dtype, counts, message):
    """No torch_npu is loaded here: anything but our own error would be an AttributeError."""
    ep = ExpertParallel(StandInGroup(0, 2), 12, product=product)
    arguments = {
        "ids": torch.zeros(1, 3, dtype=torch.int32),
        "weights": torch.zeros(1, 3),
        "ep": ep,
        "token_counts": counts,
    }
    x = torch.zeros(1, HIDDEN, dtype=dtype)
    if operator is moe_distribute_dispatch:
        arguments |= {"x": x, "quantized": False}
    else:
        arguments |= {"expert_out": x, "state": None}
    with pytest.raises(OperatorError, match=f"{operator.spec.name}.*{message}"):
        operator.npu(**arguments)
