"""The HIVM check: what passes, what does not, and what it would let through."""

from __future__ import annotations

import pytest

from sglang_ascend.kernel_proof import hivm, lint
from sglang_ascend.kernel_proof.frontend import lower
from sglang_ascend.kernel_proof.planned_memory import peaks, unplanned
from tests.kernels import small_kernels

HIVM = """
  func.func @k_mix_aic() {
    %c4096_i64 = arith.constant 4096 : i64
    %c8192_i64 = arith.constant 8192 : i64
    %0 = hivm.hir.pointer_cast(%c4096_i64, %c8192_i64) : memref<4x1x16x16xbf16, #hivm.address_space<cbuf>>
    %1 = hivm.hir.pointer_cast(%c4096_i64) : memref<2x16xf32, strided<[16, 1]>, #hivm.address_space<cc>>
  func.func @k_mix_aiv() {
    %c4096_i64 = arith.constant 32 : i64
    %0 = hivm.hir.pointer_cast(%c4096_i64) : memref<8x64xi1, #hivm.address_space<ub>>
"""  # noqa: E501


def test_peaks_take_every_copy_of_a_buffer_and_the_constants_of_its_function():
    assert peaks(HIVM) == {"cbuf": 8192 + 2048, "cc": 4096 + 128, "ub": 32 + 64}


def test_a_buffer_without_an_address_is_noticed():
    line = "%a = memref.alloc() {alignment = 64} : memref<4xf32, #hivm.address_space<ub>>"
    assert unplanned(HIVM) == []
    assert unplanned(HIVM + line) == ["1 buffer(s) without an address in ub"]


@pytest.mark.parametrize("target", ["910B", "910C"])
def test_a_block_that_fits_passes_and_a_block_of_all_memory_does_not(target):
    spec = small_kernels.make(small_kernels.add, fits=1024, overflows=65536)
    fits = hivm.check(spec, spec.config("fits"), target)
    assert fits.passed and fits.ub_bytes == 2 * 1024 * 4
    overflow = hivm.check(spec, spec.config("overflows"), target)
    assert not overflow.passed
    assert overflow.message == "ub overflow, requires 4194304 bits while 1572864 bits available"
    assert overflow.given_up == ("enable-code-motion", "enable-auto-multi-buffer")


def test_inline_assembly_passes_the_compiler_and_not_the_lint():
    spec = small_kernels.make(small_kernels.add_by_assembly, only=64)
    config = spec.config("only")
    assert hivm.check(spec, config, "910C").passed
    assert [fault.partition(":")[0] for fault in lint.faults(spec, lower(spec, config))] == [
        "inline assembly"
    ]


def test_a_product_into_an_atomic_is_lost_by_the_compiler_and_refused_by_the_lint():
    """HIVM's vector part adds a buffer that nothing was loaded into; no error says so."""
    spec = small_kernels.make(small_kernels.product_into_atomic, only=64)
    config = spec.config("only")
    lowered = lower(spec, config)
    assert hivm.check(spec, config, "910C").passed
    text, _ = hivm.hivm_text(lowered.linalg, hivm.flags_of(config, "910C"))
    vector_part = text[text.index("_mix_aiv") :]
    assert "@store_ubuf_to_gm" in vector_part and "@load_gm_to_ubuf" not in vector_part
    assert lint.faults(spec, lowered)[0].startswith("atomics in a kernel with tl.dot")


def test_a_kernel_that_triton_may_specialise_is_refused_by_the_lint():
    plain = small_kernels.make(small_kernels.add, only=1024)
    assert lint.faults(plain, lower(plain, plain.config("only"))) == []
    special = small_kernels.make(small_kernels.add_specialised, only=1024)
    faults = lint.faults(special, lower(special, special.config("only")))
    assert [fault.split()[1] for fault in faults] == ["x_ptr", "y_ptr", "out_ptr", "length"]
