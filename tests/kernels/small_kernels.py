"""Small kernels on which the checks themselves are tested."""

from __future__ import annotations

import triton
import triton.language as tl

from sglang_ascend.kernels.spec import KernelConfig, KernelSpec, ascend_kernel


@ascend_kernel
def add(x_ptr, y_ptr, out_ptr, length, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < length
    total = tl.load(x_ptr + at, mask=mask) + tl.load(y_ptr + at, mask=mask)
    tl.store(out_ptr + at, total, mask=mask)


@triton.jit
def add_specialised(x_ptr, y_ptr, out_ptr, length, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < length
    total = tl.load(x_ptr + at, mask=mask) + tl.load(y_ptr + at, mask=mask)
    tl.store(out_ptr + at, total, mask=mask)


@ascend_kernel
def add_by_assembly(x_ptr, y_ptr, out_ptr, length, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    moved = tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [tl.load(x_ptr + at)], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(out_ptr + at, moved + tl.load(y_ptr + at), mask=at < length)


@ascend_kernel
def product_into_atomic(x_ptr, y_ptr, out_ptr, length, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    for _ in range(length):
        tl.atomic_add(out_ptr + at, tl.dot(tl.load(x_ptr + at), tl.load(y_ptr + at)))


def make(kernel, *, dtype: str = "fp32", **blocks: int) -> KernelSpec:
    """A spec of one of these kernels; `blocks` names its configurations."""
    return KernelSpec(
        name=kernel.__name__,
        kernel=kernel,
        signature={"x_ptr": "*T", "y_ptr": "*T", "out_ptr": "*fp32", "length": "i32"},
        configs=tuple(
            KernelConfig(name, {"BLOCK": block}, dtype=dtype) for name, block in blocks.items()
        ),
        launcher=make,
        reference="tests.kernels.small_kernels:reference",
    )
