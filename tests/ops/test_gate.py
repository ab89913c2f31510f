"""Expert choice against transformers' routers."""

import pytest
import torch
from transformers import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter

from sglang_ascend.ops.gate_topk_grouped_sigmoid import gate_topk_grouped_sigmoid
from sglang_ascend.ops.gate_topk_softmax import gate_topk_softmax
from sglang_ascend.ops.spec import OperatorError


def _router(experts, groups, top_groups, top_k, renormalize, scale):
    config = DeepseekV3Config(
        hidden_size=16,
        n_routed_experts=experts,
        num_experts_per_tok=top_k,
        n_group=groups,
        topk_group=top_groups,
        norm_topk_prob=renormalize,
        routed_scaling_factor=scale,
    )
    router = DeepseekV3TopkRouter(config)
    router.weight.data.copy_(torch.randn(experts, 16))
    router.e_score_correction_bias.copy_(torch.randn(experts))
    return router


def _by_expert(weights, ids, experts):
    """Weights by expert [tokens, experts]: the order of the choices does not matter."""
    return torch.zeros(weights.shape[0], experts).scatter_(1, ids.long(), weights)


@pytest.mark.parametrize(
    ("experts", "groups", "top_groups", "top_k"),
    [(16, 4, 2, 4), (256, 8, 4, 8), (16, 1, 1, 4), (16, 4, 4, 16), (6, 3, 1, 1), (8, 4, 1, 2)],
)
@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("tokens", [0, 1, 33])
@torch.no_grad()
def test_grouped_sigmoid_is_transformers(experts, groups, top_groups, top_k, renormalize, tokens):
    torch.manual_seed(0)
    router = _router(experts, groups, top_groups, top_k, renormalize, 2.5)
    logits = torch.randn(tokens, 16) @ router.weight.t()
    weights, ids = gate_topk_grouped_sigmoid(
        logits, router.e_score_correction_bias, top_k, groups, top_groups, renormalize, 2.5
    )
    if tokens == 0:
        assert weights.shape == ids.shape == (0, top_k)
        return
    _, expected_weights, expected_ids = _route(router, logits)
    torch.testing.assert_close(
        _by_expert(weights, ids, experts),
        _by_expert(expected_weights, expected_ids, experts),
        rtol=1e-6,  # the sum of the weights is taken in another order
        atol=0,
    )
    order = logits.sigmoid() + router.e_score_correction_bias
    assert (order.gather(1, ids.long()).diff(dim=-1) <= 0).all()


def _route(router, logits):
    """transformers' router on given logits: an identity weight passes them through."""
    router.hidden_dim = logits.shape[1]
    router.weight.data = torch.eye(logits.shape[1])
    return router(logits)


def test_grouped_sigmoid_with_ties():
    """Equal scores: any experts of the right groups, each at most once, with the right weights."""
    logits, bias = torch.zeros(3, 16), torch.zeros(16)
    bias[4:8] = 1.0
    weights, ids = gate_topk_grouped_sigmoid(logits, bias, 4, 4, 1, True, 1.0)
    assert sorted(ids[0].tolist()) == [4, 5, 6, 7]
    weights, ids = gate_topk_grouped_sigmoid(logits, torch.zeros(16), 6, 4, 2, True, 1.0)
    for row in ids:
        assert len(set(row.tolist())) == 6 and len({int(e) // 4 for e in row}) == 2
    torch.testing.assert_close(weights, torch.full((3, 6), 1 / 6))


def test_grouped_sigmoid_of_extreme_logits_is_finite():
    logits = torch.tensor([[-200.0] * 8, [200.0] * 8, [-3e38, 3e38] * 4])
    weights, _ = gate_topk_grouped_sigmoid(logits, torch.zeros(8), 4, 2, 1, True, 1.0)
    assert weights.isfinite().all()


@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("tokens", [0, 1, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_softmax(renormalize, tokens, dtype):
    torch.manual_seed(0)
    logits = torch.randn(tokens, 12).to(dtype)
    weights, ids = gate_topk_softmax(logits, 3, renormalize)
    for token in range(tokens):
        probabilities = logits[token].double().exp() / logits[token].double().exp().sum()
        best = sorted(range(12), key=lambda expert: -probabilities[expert])[:3]
        expected = probabilities[ids[token].long()]
        torch.testing.assert_close(expected, probabilities[torch.tensor(best)])
        if renormalize:
            expected = expected / expected.sum()
        torch.testing.assert_close(weights[token].double(), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_group": 3}, "n_group must divide 16 experts into groups of at least 2, got 3"),
        ({"n_group": 16}, "n_group must divide 16 experts into groups of at least 2, got 16"),
        ({"topk_group": 5}, "topk_group must be in 1..4, got 5"),
        ({"top_k": 9}, "top_k must be in 1..8, got 9"),
        ({"top_k": 0}, "top_k must be in 1..8, got 0"),
        ({"bias": torch.zeros(15)}, r"bias axis 0 \(experts\) must be 16 as in logits, got 15"),
    ],
)
def test_wrong_arguments(changes, message):
    arguments = {
        "logits": torch.zeros(2, 16),
        "bias": torch.zeros(16),
        "top_k": 4,
        "n_group": 4,
        "topk_group": 2,
        "renormalize": True,
        "routed_scaling_factor": 1.0,
    }
    with pytest.raises(OperatorError, match=f"gate_topk_grouped_sigmoid: {message}"):
        gate_topk_grouped_sigmoid(**{**arguments, **changes})


@pytest.mark.parametrize("top_k", [0, 13])
def test_softmax_top_k_out_of_range(top_k):
    with pytest.raises(OperatorError, match=f"top_k must be in 1..12, got {top_k}"):
        gate_topk_softmax(torch.zeros(1, 12), top_k, True)
