"""What makes a check say yes without reason, found in the Triton IR of a kernel."""

from __future__ import annotations

import re

from sglang_ascend.kernel_proof.frontend import Lowered
from sglang_ascend.kernels.spec import KernelSpec

_EXTERN = re.compile(r'tt\.extern_elementwise.*?symbol = "([^"]*)"')


def faults(spec: KernelSpec, lowered: Lowered) -> list[str]:
    """Reasons why the checks of this kernel could not be trusted; empty if there are none."""
    found = []
    ttir = lowered.ttir
    if "tt.elementwise_inline_asm" in ttir:
        found.append("inline assembly: the NPU compiler passes any text through up to HIVM")
    if "tt.dot" in ttir and "tt.atomic" in ttir:
        found.append(
            "atomics in a kernel with tl.dot: HIVM of ascendnpu-ir 1.2.0 repeats them on both"
            " vector cores of a cube core, reorders them over iterations, and loses a product that"
            " goes straight into one; the compiler reports none of this"
        )
    for symbol in _EXTERN.findall(ttir):
        if not symbol.startswith("__hmf_"):
            found.append(f"call of {symbol}, which is none of the vendor's __hmf_ functions")
    for parameter in spec.kernel.params:
        if not parameter.is_constexpr and not parameter.do_not_specialize:
            found.append(
                f"argument {parameter.name} may be made a constant at launch; decorate the kernel"
                " with `ascend_kernel`"
            )
    return found
