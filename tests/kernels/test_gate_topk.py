"""The gate kernel, run natively against its operator."""

from __future__ import annotations

import pytest
import torch

from sglang_ascend.kernel_proof.comparison import assert_close
from sglang_ascend.kernel_proof.native_run import native_backend
from sglang_ascend.kernels.gate_topk_grouped_sigmoid import gate_topk_grouped_sigmoid_launch
from sglang_ascend.ops.gate_topk_grouped_sigmoid import gate_topk_grouped_sigmoid
from sglang_ascend.ops.spec import OperatorError
from tests.kernels.recording import Recorder

ON = native_backend("910C")
NAME = "gate_topk_grouped_sigmoid"
DEEPSEEK_V3 = (8, 8, 4, True, 2.5)


def logits_of(tokens: int, experts: int) -> torch.Tensor:
    """Rows of a wider tensor, NaN behind them."""
    wide = torch.full((tokens, experts + 16), float("nan"))
    wide[:, :experts] = torch.randn(tokens, experts)
    return wide[:, :experts]


def check(logits, bias, *options, on=ON):
    weights, ids = gate_topk_grouped_sigmoid_launch(logits, bias, *options, on)
    want_weights, want_ids = gate_topk_grouped_sigmoid(logits, bias, *options)
    assert torch.equal(ids, want_ids)
    assert_close(NAME, "fp32", weights, want_weights)


@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize(("tokens", "config"), [(1, 1), (40, 1), (397, 8)])
def test_deepseek_v3(tokens, config, renormalize):
    torch.manual_seed(0)
    recorder = Recorder("910C")
    logits, bias = logits_of(tokens, 256), torch.randn(256) / 10
    check(logits, bias, 8, 8, 4, renormalize, 2.5, on=recorder.backend)
    assert recorder.ran == [f"{NAME}/groups8x32_tokens{config}"]


@pytest.mark.parametrize(("top_k", "groups", "top_groups"), [(8, 8, 8), (1, 8, 1), (5, 8, 3)])
def test_other_numbers_of_choices_and_groups(top_k, groups, top_groups):
    torch.manual_seed(0)
    check(logits_of(9, 256), torch.randn(256), top_k, groups, top_groups, True, 1.0)


def test_without_groups():
    torch.manual_seed(0)
    check(logits_of(60, 384), torch.randn(384) / 10, 8, 1, 1, True, 2.827)


def test_logits_at_the_ends_of_the_range():
    torch.manual_seed(0)
    logits = logits_of(3, 256)
    # Scores of exactly 1 and 0, told apart by the bias alone.
    logits[0] = 300.0
    logits[1] = -300.0
    logits[2, ::2] = float("inf")
    logits[2, 1::2] = float("-inf")
    check(logits, torch.randperm(256) / 1000, 8, 8, 4, False, 1.0)


def test_the_bias_chooses_and_does_not_weigh():
    logits = torch.zeros(1, 256)
    bias = torch.zeros(256)
    bias[[3, 40, 70, 100]] = 10.0
    _, ids = gate_topk_grouped_sigmoid_launch(logits, bias, 4, 8, 4, True, 1.0, ON)
    weights, _ = gate_topk_grouped_sigmoid_launch(logits, bias, 4, 8, 4, False, 1.0, ON)
    assert sorted(ids[0].tolist()) == [3, 40, 70, 100] and weights[0].tolist() == [0.5] * 4


def test_of_equal_scores_the_lower_expert_comes_first():
    weights, ids = gate_topk_grouped_sigmoid_launch(
        torch.zeros(2, 256), torch.zeros(256), *DEEPSEEK_V3, ON
    )
    assert ids.tolist() == [list(range(8))] * 2
    assert_close(NAME, "fp32", weights, torch.full((2, 8), 2.5 / 8))


def test_no_tokens():
    weights, ids = gate_topk_grouped_sigmoid_launch(
        torch.zeros(0, 256), torch.zeros(256), *DEEPSEEK_V3, ON
    )
    assert weights.shape == ids.shape == (0, 8)


@pytest.mark.parametrize(
    ("logits", "top_k", "groups", "message"),
    [
        (torch.zeros(2, 256), 9, 8, "missing top_k=9; device cpu"),
        (torch.zeros(2, 160), 8, 1, r"missing groups=\(1, 160\); device cpu"),
        (torch.zeros(2, 256).half(), 8, 8, "missing dtype=torch.float16; device cpu"),
        (torch.zeros(256, 2).t(), 8, 8, "missing element_stride=2; device cpu"),
        (torch.zeros(2, 256), 8, 7, "n_group must divide 256 experts"),
    ],
)
def test_outside_the_declared_features(logits, top_k, groups, message):
    with pytest.raises(OperatorError, match=message):
        gate_topk_grouped_sigmoid_launch(
            logits, torch.zeros(logits.shape[1]), top_k, groups, groups, True, 1.0, ON
        )
