"""Recording of the shapes with which operators are called."""

from __future__ import annotations

import json

import pytest
import torch

from sglang_ascend.contract import record
from sglang_ascend.ops.call_shapes import build, describe
from sglang_ascend.ops.rms_norm import rms_norm
from sglang_ascend.ops.spec import CHECK_OPS_ENV

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).view(3, 4),
        torch.arange(12, dtype=torch.bfloat16).view(3, 4).t(),
        torch.arange(24).view(2, 3, 4)[:, 1:, ::2],
        torch.ones(1, 4).expand(3, 4),
        torch.empty(0, 5, dtype=torch.int32),
        torch.tensor(True),
    ],
)
def test_tensors_come_back_with_their_shape(tensor):
    made = build(json.loads(json.dumps(describe(tensor))), CPU)
    assert (made.shape, made.dtype) == (tensor.shape, tensor.dtype)
    assert made.numel() == 0 or made.stride() == tensor.stride()


def test_fill_is_valid_for_integers_and_floats():
    assert build(describe(torch.tensor([5, 3, 9])), CPU).tolist() == [3, 3, 3]
    assert build(describe(torch.tensor([0.0, 0.5])), CPU).tolist() == [0.5, 0.5]
    assert build(describe(torch.tensor([0.0, float("inf")])), CPU).tolist() == [0.0, 0.0]


def test_other_arguments():
    arguments = [None, True, 3, 0.5, "TND", [1, 2], torch.int8]
    assert build(json.loads(json.dumps(describe(arguments))), CPU) == arguments
    with pytest.raises(TypeError, match="an argument of type Generator has no description"):
        describe(torch.Generator())


def test_every_kind_of_call_is_written_once(tmp_path, monkeypatch):
    monkeypatch.setenv(CHECK_OPS_ENV, f"record={tmp_path}")
    for tokens, value in ((2, 1.0), (2, 3.0), (5, 1.0)):
        rms_norm(torch.full((tokens, 8), value), torch.ones(8), 1e-6)
    (path,) = tmp_path.glob("*.jsonl")
    calls = [json.loads(line) for line in path.read_text().splitlines()]
    assert [call["arguments"]["x"]["tensor"] for call in calls] == [[2, 8], [5, 8]]
    assert calls[0]["arguments"]["eps"] == 1e-6 and calls[0]["operator"] == "rms_norm"


def test_of_many_alike_the_ends_and_the_middle_stay():
    def call(rows, stride=None):
        x = {"tensor": [rows, 8], "dtype": "float32", "fill": rows}
        if stride:
            x["stride"] = stride
        return {"operator": "swiglu", "arguments": {"x": x}}

    plain = [call(rows) for rows in range(9)]
    strided = [call(3, [16, 1]), call(4, [32, 1])]
    kept = record.thin([*reversed(plain), *strided])
    rows = [(c["arguments"]["x"]["tensor"][0], "stride" in c["arguments"]["x"]) for c in kept]
    assert rows == [(0, False), (3, True), (4, False), (4, True), (8, False)]
    assert record.thin(kept) == kept
