"""The native run: results, guards, and arguments that do not fit the signature."""

from __future__ import annotations

import pytest
import torch

from sglang_ascend.kernel_proof.comparison import assert_close
from sglang_ascend.kernel_proof.interpreter import interpreter_backend
from sglang_ascend.kernel_proof.native_run import native_backend
from sglang_ascend.kernels.split_combine import SPEC as COMBINE
from sglang_ascend.kernels.split_combine import reference
from sglang_ascend.ops.spec import OperatorError
from tests.kernels import small_kernels

SPEC = small_kernels.make(small_kernels.add, only=1024)


def launch(x, y, out, length, programs=5):
    native_backend().launch(SPEC, SPEC.configs[0], (programs,), x, y, out, length)


def test_a_grid_of_programs_writes_what_its_mask_allows():
    x, y = torch.randn(2, 5000)
    out = torch.full((5000,), float("nan"))
    launch(x, y, out, 4999)
    assert torch.equal(out[:4999], (x + y)[:4999]) and bool(out[4999].isnan())


def test_views_of_one_storage_stay_one_storage():
    storage = torch.arange(3000.0)
    launch(storage[:1000], storage[1000:2000], storage[2000:], 1000, programs=1)
    assert torch.equal(storage[2000:], storage[:1000] + storage[1000:2000])


def test_writing_outside_raises_and_reading_outside_gives_nan():
    x, y, out = torch.randn(5000), torch.randn(4000), torch.zeros(5000)
    launch(x, y, out, 5000)
    assert bool(out[4000:].isnan().all()) and not bool(out[:4000].isnan().any())
    with pytest.raises(OperatorError, match="wrote outside a buffer of 16000 bytes"):
        launch(x, x, torch.zeros(4000), 5000)


def test_a_tensor_of_another_dtype_is_refused():
    x = torch.randn(1024)
    with pytest.raises(OperatorError, match="y_ptr must be a tensor of torch.float32, got .*int32"):
        launch(x, x.int(), x.clone(), 1024)


def test_an_empty_grid_does_nothing():
    x = torch.randn(8)
    launch(x, x, x, 8, programs=0)


def test_the_interpreter_and_the_native_run_agree():
    part, log_sum = torch.randn(4, 1, 16, 64), torch.randn(4, 1, 16) * 3
    tiles = torch.tensor([[0, 1, 0, 16], [1, 3, 16, 5]], dtype=torch.int32)
    want = torch.cat((part[0, 0], reference(part[1:, 0], log_sum[1:, 0])[:5]))

    def run(backend):
        out = torch.full((22, 64), 7.0, dtype=torch.bfloat16)
        config = COMBINE.config("dim64")
        backend.launch(COMBINE, config, (2, 1, 1), part, log_sum, tiles, out, 1, 16, 0, 64)
        assert bool((out[21] == 7).all())
        return out[:21]

    assert_close("split_combine", "bf16", run(native_backend()), want)
    # The interpreter cuts to bfloat16 instead of rounding.
    torch.testing.assert_close(run(interpreter_backend()).double(), want, rtol=2**-7, atol=2**-20)
