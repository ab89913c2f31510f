"""The screened output layer: the choice of all logits, and their bits where computed."""

import types

import pytest
import torch

from sglang_ascend.native import int8, matmul, rows, screening


def weights(kind, vocabulary=3001, hidden=130):
    torch.manual_seed(len(kind))
    weight = torch.randn(vocabulary, hidden)
    if kind == "outliers":
        weight[:, 7] *= 40
        weight[5] *= 1000
        weight[6:9] = 0
        weight[9] *= 1e-20
    if kind == "close":  # many tokens within a quantisation step of each other
        weight = weight[:1] + 1e-3 * torch.randn(vocabulary, hidden)
    return weight


def inputs(kind, hidden=130):
    x = torch.randn(20, hidden)
    if kind == "outliers":
        x[:, 3] *= 100
        x[4] = 0
        x[5] *= 1e-12
    return x


@pytest.mark.parametrize("kind", ["plain", "outliers", "close"])
def test_choice_and_computed_logits_are_the_full_products(kind):
    weight, x = weights(kind), inputs(kind)
    head = screening.ScreenedHead(weight)
    for count in (1, 2, 20):
        full, screened = matmul.linear(x[:count], weight), head.logits(x[:count])
        assert torch.equal(screened.argmax(-1), full.argmax(-1))
        computed = screened > -torch.inf
        assert torch.equal(screened[computed], full[computed])
    if kind == "plain":
        assert computed.sum() < 20 * 100  # of 20 * 3001


@pytest.mark.parametrize("kind", ["plain", "outliers", "close"])
def test_no_product_is_further_off_than_its_bound(kind):
    weight, x = weights(kind), inputs(kind)
    head = screening.ScreenedHead(weight)
    q, scale = rows.dynamic_quant(x)
    q2, scale2 = rows.dynamic_quant(x - q.float() * scale[:, None])
    rough = sum(
        int8.matmul(part, own, head._packed, head._scale, torch.float32).double()
        for part, own in ((q, scale), (q2, scale2))
    )
    off = (rough - x.double() @ weight.double().t()).abs()
    assert bool((off <= head._bound.double() * x.double().norm(dim=1)[:, None]).all())


def test_of_equal_tokens_the_first_is_chosen():
    weight = weights("plain")
    weight[2000] = weight[100] = weight[:, :].abs().amax(0)
    x = weight[100:101].clone()
    assert screening.ScreenedHead(weight).logits(x).argmax(-1).item() == 100


def test_what_is_not_a_number_is_not_hidden():
    weight, x = weights("plain"), inputs("plain")
    x[2, 5] = torch.nan
    screened = screening.ScreenedHead(weight).logits(x)
    assert bool(screened[2].isnan().all()) and not bool(screened[3].isnan().any())


def test_a_copy_is_made_once_and_again_after_an_update_of_weights():
    owner, weight = types.SimpleNamespace(), weights("plain")
    first = screening.head_of(owner, weight)
    assert screening.head_of(owner, weight) is first
    screening.forget()
    weight[:] = -weight
    x = inputs("plain")
    screened = screening.head_of(owner, weight).logits(x)
    assert torch.equal(screened.argmax(-1), matmul.linear(x, weight).argmax(-1))


def test_other_weights_are_left_alone():
    assert screening.head_of(types.SimpleNamespace(), torch.randn(8, 8).double()) is None
