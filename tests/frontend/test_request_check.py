"""Every number of the table is refused out of bounds and accepted at them, alone and in a batch."""

from __future__ import annotations

import math

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang.srt.managers.io_struct import EmbeddingReqInput, GenerateReqInput
from sglang.srt.sampling.sampling_params import SamplingParams

from sglang_ascend.frontend.limits import Limits
from sglang_ascend.frontend.refusal import RequestRefused
from sglang_ascend.frontend.request_bounds import (
    REQUEST_BOUNDS,
    SAMPLING_BOUNDS,
    SESSION_BOUNDS,
    Bound,
)
from sglang_ascend.frontend.request_check import check_request
from sglang_ascend.frontend.wire_types import check_wire_types

LIMITS = Limits(vocab_size=1000, context_len=64, hidden_size=8)
BOUNDS = [
    pytest.param(where, bound, id=f"{where}.{bound.field}")
    for where, table in (
        ("request", REQUEST_BOUNDS),
        ("sampling_params", SAMPLING_BOUNDS),
        ("session_params", SESSION_BOUNDS),
    )
    for bound in table
]


def check(request):
    check_request(request, LIMITS)
    check_wire_types(request)


def value_of(bound: Bound, number):
    """``number`` in the form that the field takes."""
    if bound.kind == "ids":
        return [1, number]
    return {str(number): 1.0} if bound.kind == "id keys" else number


def make(where: str, bound: Bound, value):
    """A request that is right but for one field."""
    fields = {"sampling_params": {}}
    if where == "request":
        kind = GenerateReqInput if hasattr(GenerateReqInput, bound.field) else EmbeddingReqInput
        fields[bound.field] = value
        if bound.field != "input_ids":
            fields["text"] = "a"
        return kind(**fields)
    fields[where] = {bound.field: value}
    return GenerateReqInput(text="a", **fields)


def outside(bound: Bound) -> list:
    low, high = bound.lower(LIMITS), bound.upper(LIMITS)
    step = 0.5 if bound.kind == "number" else 1
    far = [-(2**70), 2**70, -1e300, 1e300] if bound.kind == "number" else [-(2**70), 2**70]
    return [low - step, high + step, *far]


@pytest.mark.parametrize(("where", "bound"), BOUNDS)
def test_out_of_bounds_is_refused_with_field_value_and_limit(where, bound):
    for number in outside(bound):
        with pytest.raises(RequestRefused) as refused:
            check(make(where, bound, value_of(bound, number)))
        message = str(refused.value)
        assert bound.field in message
        assert str(number) in message
        for limit in (bound.lower(LIMITS), bound.upper(LIMITS)):
            assert (f"{limit:g}" if bound.kind == "number" else str(limit)) in message
        assert "\n" not in message


@pytest.mark.parametrize(("where", "bound"), BOUNDS)
def test_bounds_themselves_are_accepted(where, bound):
    for number in (bound.lower(LIMITS), bound.upper(LIMITS)):
        check(make(where, bound, value_of(bound, number)))


@pytest.mark.parametrize(("where", "bound"), BOUNDS)
@pytest.mark.parametrize("wrong", [True, "7", math.nan, math.inf, [[1]], {"a": 1}, b"1"], ids=repr)
def test_other_types_are_refused(where, bound, wrong):
    if bound.kind == "id keys":
        wrong = {"1": wrong} if not isinstance(wrong, dict) else {"one": 1.0}
    with pytest.raises(RequestRefused, match=bound.field):
        check(make(where, bound, value_of(bound, wrong) if bound.kind == "ids" else wrong))


@pytest.mark.parametrize("key", ["", "-1", "1.0", "0x1", " 1", "1_0", "٣", "9" * 5000])
def test_a_bias_key_is_a_plain_token_id(key):
    with pytest.raises(RequestRefused, match="logit_bias"):
        check(GenerateReqInput(text="a", sampling_params={"logit_bias": {key: 1.0}}))


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("top_logprobs_num", [0, 128], [0, 129]),
        ("logprob_start_len", [-1, 0], [0, -2]),
        ("token_ids_logprob", [[1], None], [[1], [1000]]),
        ("sampling_params", [{"top_k": 1}, {}], [{}, {"top_k": 2**31}]),
        ("input_ids", [[1], [999]], [[1], [1000]]),
        ("input_ids", [[1], [2]], [[1], [None]]),
    ],
)
def test_one_bad_prompt_refuses_its_batch_by_index(field, good, bad):
    base = {"sampling_params": {}} | ({} if field == "input_ids" else {"text": ["a", "b"]})
    check(GenerateReqInput(**{**base, field: good}))
    with pytest.raises(RequestRefused, match=rf"{field}\[1\]"):
        check(GenerateReqInput(**{**base, field: bad}))


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        (["a", "b"], "top_logprobs_num", [1]),
        (["a", "b"], "lora_path", ["x", "y", "z"]),
        (["a", "b"], "token_ids_logprob", [[1]]),
        (["a", "b"], "token_indices_to_pool", [0, 1]),
        (["a", "b"], "multi_item_delimiter_indices", [[0]]),
        ("a", "top_logprobs_num", [1]),
        ("a", "sampling_params", [{}]),
        ("a", "token_ids_logprob", [[1]]),
        ("a", "token_indices_to_pool", [[0]]),
    ],
)
def test_lists_that_do_not_fit_the_batch(text, field, value):
    with pytest.raises(RequestRefused, match=f"{field} has .* per prompt"):
        check(GenerateReqInput(**{"text": text, "sampling_params": {}, field: value}))


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        (["a", "b"], "token_ids_logprob", [1, 2, 3]),
        (["a", "b"], "token_indices_to_pool", [[0], [0, 1]]),
        ("a", "token_indices_to_pool", [0, 1]),
        ("a", "token_ids_logprob", []),
    ],
)
def test_lists_that_fit(text, field, value):
    check(GenerateReqInput(**{"text": text, "sampling_params": {}, field: value}))


def test_several_samples_of_one_prompt_are_a_batch_of_one():
    check(GenerateReqInput(text="a", sampling_params={"n": 2}, bootstrap_room=[7]))


def test_sequences_of_a_request_are_limited_together():
    many = ["a"] * (LIMITS.max_sequences // 64)
    check(GenerateReqInput(text=many, sampling_params={"n": 64}))
    with pytest.raises(RequestRefused, match="65536 sequences"):
        check(GenerateReqInput(text=many, sampling_params={"n": 65}))


def test_vectors_have_the_width_of_the_model():
    check(GenerateReqInput(input_embeds=[[0.0] * 8] * 3, sampling_params={}))
    for bad in ([[0.0] * 7], [[0.0] * 7 + [math.nan]], [[]], []):
        with pytest.raises(RequestRefused, match="input_embeds"):
            check(GenerateReqInput(input_embeds=bad, sampling_params={}))


@pytest.mark.parametrize(
    ("where", "params"),
    [
        ("sampling_params", {"custom_params": {"a": [[1]]}}),
        ("sampling_params", {"custom_params": {"a": 2**80}}),
        ("sampling_params", {"custom_params": {"a": math.nan}}),
        ("sampling_params", {"regex": 5}),
        ("sampling_params", {"ignore_eos": 1}),
        ("sampling_params", {"is_normalized": True}),
        ("sampling_params", {"no_such": 1}),
        ("sampling_params", [1]),
        ("session_params", {"id": 5}),
        ("session_params", {"no_such": 5}),
    ],
)
def test_types_that_a_scheduler_cannot_decode(where, params):
    text = ["a"] if isinstance(params, list) else "a"
    with pytest.raises(RequestRefused, match=where):
        check(GenerateReqInput(**{"text": text, "sampling_params": {}, where: params}))


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
NAMES = st.sampled_from([field.name for field in msgspec.structs.fields(SamplingParams)])


@given(params=st.dictionaries(NAMES, ANY, max_size=4))
@settings(max_examples=500, deadline=None)
def test_what_passes_can_be_sent_and_decoded(params):
    """Nothing but a refusal comes of any value, and what is not refused survives the wire."""
    try:
        check(GenerateReqInput(text="a", sampling_params=params))
        sent = SamplingParams(**params)
    except ValueError:  # RequestRefused, or SGLang's own for a watermark
        return
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=SamplingParams)
    assert decoded == sent


def test_upstream_fails_without_the_check():
    """Why the seam is there: what these numbers do where they are used."""
    from sglang.srt.layers.logprob_processor import get_top_logprobs

    request = GenerateReqInput(text="a", sampling_params={"n": 100_000})
    request.normalize_batch_and_arguments()
    assert len(request.text) == 100_000  # and every other list as well
    with pytest.raises(RuntimeError):
        get_top_logprobs(torch.zeros(1, 10), [11])
    with pytest.raises(RuntimeError):
        torch.tensor([2**40], dtype=torch.int32)  # SamplingBatchInfo's top_ks
    SamplingParams(top_k=2**40, stop_token_ids=[10**9], min_new_tokens=1).verify(1000)
    sent = msgspec.msgpack.encode(SamplingParams(custom_params={"a": [[1]]}))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(sent, type=SamplingParams)
