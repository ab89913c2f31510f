"""Permute, grouped product and unpermute, alone and as one expert layer."""

import pytest
import torch
from transformers import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Experts

from sglang_ascend.ops.grouped_matmul import grouped_matmul
from sglang_ascend.ops.moe_permute import moe_permute
from sglang_ascend.ops.moe_unpermute import moe_unpermute
from sglang_ascend.ops.spec import OperatorError
from sglang_ascend.ops.swiglu import swiglu

EXPERTS = 6

ROUTINGS = {
    "random": lambda tokens: torch.stack([torch.randperm(EXPERTS)[:3] for _ in range(tokens)]),
    "all to one expert": lambda tokens: torch.full((tokens, 3), 4),
    "empty experts": lambda tokens: torch.randint(2, 4, (tokens, 3)),
    "skipped": lambda tokens: torch.randint(-1, EXPERTS, (tokens, 3)),
    "nothing": lambda tokens: torch.full((tokens, 3), -1),
}


def _ids(routing, tokens, dtype=torch.int32):
    torch.manual_seed(0)
    return ROUTINGS[routing](tokens).to(dtype) if tokens else torch.zeros(0, 3, dtype=dtype)


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("tokens", [0, 1, 17])
@pytest.mark.parametrize(("start", "end"), [(0, EXPERTS), (2, 5), (0, 1), (5, 6)])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_permute(routing, tokens, start, end, dtype):
    ids = _ids(routing, tokens, dtype)
    x = torch.randn(8, tokens).t()
    sorted_x, row_index, counts = moe_permute(x, ids, start, end)
    pairs = [
        (int(ids[token, choice]), token, choice)
        for token in range(tokens)
        for choice in range(3)
        if start <= ids[token, choice] < end
    ]
    pairs.sort()
    assert counts.tolist() == [
        sum(e == expert for e, _, _ in pairs) for expert in range(start, end)
    ]
    expected_index = torch.full((tokens, 3), -1, dtype=torch.int32)
    for row, (_, token, choice) in enumerate(pairs):
        assert torch.equal(sorted_x[row], x[token])
        expected_index[token, choice] = row
    assert torch.equal(row_index.view(tokens, 3), expected_index)


@pytest.mark.parametrize(("start", "end"), [(3, 3), (4, 2), (-1, 2)])
def test_permute_refuses_an_empty_range(start, end):
    with pytest.raises(
        OperatorError, match=f"moe_permute: expert_start .* got {start} with expert_end"
    ):
        moe_permute(torch.zeros(1, 2), torch.zeros(1, 1, dtype=torch.int32), start, end)


@pytest.mark.parametrize("counts", [[3, 0, 2, 4], [9, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]])
@pytest.mark.parametrize(("width", "out"), [(16, 8), (7, 5), (1, 1)])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_grouped_matmul(counts, width, out, transposed, dtype):
    """Rows behind the last group hold NaN, which must not reach a real row."""
    torch.manual_seed(0)
    total = sum(counts)
    x = torch.full((12, width), float("nan"), dtype=dtype)
    x[:total] = torch.randn(total, width)
    weights = torch.randn(len(counts), width, out).to(dtype)
    if transposed:
        weights = weights.transpose(1, 2).contiguous().transpose(1, 2)
    y = grouped_matmul(x, weights, torch.tensor(counts))
    start = 0
    for expert, count in enumerate(counts):
        expected = x[start : start + count].double() @ weights[expert].double()
        # Sixteen terms in float32; a 16-bit result is rounded once.
        tolerance = 1e-5 if dtype == torch.float32 else 2**-7
        torch.testing.assert_close(
            y[start : start + count].double(), expected, rtol=tolerance, atol=tolerance
        )
        start += count


@pytest.mark.parametrize("counts", [[4, 3], [-1, 3]])
def test_grouped_matmul_refuses_impossible_counts(counts):
    with pytest.raises(
        OperatorError, match="tokens_per_expert must not be negative and add up to at most 6"
    ):
        grouped_matmul(torch.zeros(6, 4), torch.zeros(2, 4, 4), torch.tensor(counts))


@pytest.mark.parametrize("tokens", [0, 1, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_unpermute(tokens, dtype):
    """Rows that nobody names hold NaN; a skipped choice has a NaN weight."""
    torch.manual_seed(0)
    expert_out = torch.full((20, 6), float("nan"), dtype=dtype)
    row_index = torch.full((tokens * 3,), -1, dtype=torch.int32)
    named = torch.randperm(20)[: tokens * 2]
    row_index[torch.randperm(tokens * 3)[: tokens * 2]] = named.int()
    expert_out[named] = torch.randn(tokens * 2, 6, dtype=dtype)
    weights = torch.rand(tokens, 3).masked_fill(row_index.view(tokens, 3) < 0, float("nan"))
    expected = torch.zeros(tokens, 6, dtype=torch.float64)
    for token in range(tokens):
        for choice in range(3):
            row = int(row_index[token * 3 + choice])
            if row >= 0:
                expected[token] += weights[token, choice].double() * expert_out[row].double()
    # Three terms in float32; a 16-bit result is rounded once.
    tolerance = 1e-6 if dtype == torch.float32 else 2**-7
    y = moe_unpermute(expert_out, row_index, weights)
    torch.testing.assert_close(y.double(), expected, rtol=tolerance, atol=tolerance)


def test_unpermute_of_nothing_is_zero():
    index = torch.full((6,), -1, dtype=torch.int32)
    poisoned = torch.full((4, 5), float("nan"))
    assert not moe_unpermute(poisoned, index, torch.rand(2, 3)).any()
    assert not moe_unpermute(torch.zeros(0, 5), index, torch.rand(2, 3)).any()


def test_unpermute_refuses_rows_out_of_range():
    with pytest.raises(OperatorError, match=r"row_index must be in -1..3, got 0..4"):
        moe_unpermute(torch.zeros(4, 2), torch.tensor([0, 4], dtype=torch.int32), torch.rand(1, 2))


@pytest.mark.parametrize("routing", ["random", "all to one expert", "empty experts"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
@torch.no_grad()
def test_expert_layer_is_transformers(routing, ranks):
    """Each rank computes its experts; the sum over ranks is the layer."""
    config = DeepseekV3Config(hidden_size=16, moe_intermediate_size=8, n_routed_experts=EXPERTS)
    experts = DeepseekV3Experts(config)
    for parameter in experts.parameters():
        parameter.data.copy_(torch.randn_like(parameter) / 4)
    ids = _ids(routing, 11)
    x, weights = torch.randn(11, 16), torch.rand(11, 3)
    total = torch.zeros(11, 16)
    for rank in range(ranks):
        start, end = rank * EXPERTS // ranks, (rank + 1) * EXPERTS // ranks
        rows, index, counts = moe_permute(x, ids, start, end)
        hidden = swiglu(
            grouped_matmul(rows, experts.gate_up_proj[start:end].transpose(1, 2), counts)
        )
        out = grouped_matmul(hidden, experts.down_proj[start:end].transpose(1, 2), counts)
        total += moe_unpermute(out, index, weights)
    expected = experts(x, ids.long(), weights)
    # The same products; the sums over choices and ranks are taken in another order.
    torch.testing.assert_close(total, expected, rtol=1e-5, atol=1e-5)
