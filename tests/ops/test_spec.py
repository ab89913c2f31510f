"""Specifications refuse wrong calls in one line: operator, argument, expected and got."""

import types

import pytest
import torch

from sglang_ascend.ops.rms_norm import rms_norm
from sglang_ascend.ops.spec import (
    CHECK_OPS_ENV,
    NpuLimit,
    Operator,
    OperatorError,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)
from sglang_ascend.ops.swiglu import swiglu


def _operator(reference, outputs) -> Operator:
    spec = OperatorSpec(
        name="toy",
        summary="",
        source="",
        inputs={
            "x": TensorSpec(("rows", "2*half"), (torch.float32,)),
            "y": TensorSpec(("half+1", 3), like="x", optional=True),
        },
        outputs=outputs,
        tolerance=Tolerance(""),
        npu_limits={"page": NpuLimit("the manual", allowed=(16, 128))},
    )
    return Operator(spec, reference, reference, ())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (torch.zeros(2, 8), torch.zeros(7), 1e-6),
            "rms_norm: weight axis 0 (hidden) must be 8 as in x, got 7",
        ),
        (
            (torch.zeros(8), torch.zeros(8), 1e-6),
            "rms_norm: x must have 2 axes ['tokens', 'hidden'], got shape [8]",
        ),
        (
            (torch.zeros(2, 8, dtype=torch.float64), torch.zeros(8), 1e-6),
            "rms_norm: x must be float32, bfloat16, float16, got float64",
        ),
        (
            (torch.zeros(2, 8), torch.zeros(8, dtype=torch.float16), 1e-6),
            "rms_norm: weight must be float32, got float16",
        ),
        ((torch.zeros(2, 8), [1.0], 1e-6), "rms_norm: weight must be a tensor, got list"),
        (
            (torch.zeros(2, 8), None, 1e-6),
            "rms_norm: weight is missing, expected a tensor ['hidden']",
        ),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(OperatorError) as error:
        rms_norm(*arguments)
    assert str(error.value) == message


def test_odd_width_is_refused():
    with pytest.raises(OperatorError, match="swiglu: x axis 1 must be even .* got 5"):
        swiglu(torch.zeros(2, 5))


def test_expressions_and_fixed_sizes():
    outputs = {"z": TensorSpec(("half",), (torch.float32,))}
    toy = _operator(lambda x, y=None: torch.zeros(x.shape[1] // 2), outputs)
    assert toy(torch.zeros(2, 8)).shape == (4,)
    assert toy(torch.zeros(2, 8), torch.zeros(5, 3)).shape == (4,)
    with pytest.raises(OperatorError, match=r"y axis 1 \(3\) must be 3, got 2"):
        toy(torch.zeros(2, 8), torch.zeros(5, 2))
    with pytest.raises(OperatorError, match=r"y axis 0 \(half\+1\) must be 5, got 4"):
        toy(torch.zeros(2, 8), torch.zeros(4, 3))


def test_wrong_results():
    one = {"z": TensorSpec(("rows", "half"), like="x")}
    with pytest.raises(OperatorError, match="toy: expected 1 results, got 2"):
        _operator(lambda x, y=None: (x, x), one)(torch.zeros(2, 8))
    with pytest.raises(OperatorError, match=r"toy: x axis 1 \(2\*half\) must be 16, got 8"):
        _operator(lambda x, y=None: x, one)(torch.zeros(2, 8))
    with pytest.raises(OperatorError, match="toy: expected 0 results, got 1"):
        _operator(lambda x, y=None: x, {})(torch.zeros(2, 8))


def test_checks_are_off_by_default(monkeypatch):
    monkeypatch.delenv(CHECK_OPS_ENV)
    # The reference's own error, or its answer: not the specification's.
    assert rms_norm(torch.ones(2, 8, dtype=torch.float64), torch.ones(8), 1e-6).shape == (2, 8)


@pytest.mark.parametrize("setting", ["yes", "record="])
def test_a_malformed_setting_is_refused(monkeypatch, setting):
    monkeypatch.setenv(CHECK_OPS_ENV, setting)
    expected = f"SGLANG_ASCEND_CHECK_OPS must be 0 or 1 or record=FOLDER, got '{setting}'"
    with pytest.raises(OperatorError, match=expected):
        rms_norm(torch.ones(2, 8), torch.ones(8), 1e-6)


class _OnNpu(torch.Tensor):
    """A CPU tensor that says it is on an NPU."""

    @property
    def device(self):
        return types.SimpleNamespace(type="npu")


def test_the_first_tensor_chooses_the_device(monkeypatch):
    monkeypatch.delenv(CHECK_OPS_ENV)
    spec = _operator(None, {}).spec
    operator = Operator(
        spec, lambda *args, **kwargs: "reference", lambda *args, **kwargs: "npu", ()
    )
    here, there = torch.zeros(1), torch.zeros(1).as_subclass(_OnNpu)
    assert operator(here) == operator(3, here, there) == operator(x=here) == "reference"
    assert operator(there) == operator(3, there, here) == operator(None, x=there) == "npu"


def test_a_call_without_a_tensor_has_no_device():
    with pytest.raises(OperatorError, match="at least one tensor"):
        rms_norm(1, 2, 3)


def test_npu_limit_message():
    toy = _operator(lambda x, y=None: x, {})
    toy.spec.require_npu("page", 16)
    with pytest.raises(OperatorError) as error:
        toy.spec.require_npu("page", 32)
    assert str(error.value) == "toy on npu: page is 32, allowed is one of 16, 128 (the manual)"


@pytest.mark.parametrize(
    ("limit", "good", "bad", "text"),
    [
        (NpuLimit("", allowed=(1, 2)), 2, 3, "one of 1, 2"),
        (NpuLimit("", maximum=5), 5, 6, "at most 5"),
        (NpuLimit("", multiple_of=16), 48, 40, "a multiple of 16"),
    ],
)
def test_npu_limits(limit, good, bad, text):
    assert limit.accepts(good) and not limit.accepts(bad) and str(limit) == text
