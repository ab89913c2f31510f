"""All kernels, by name. A kernel file is listed here and defines `KERNELS`, a tuple of specs."""

from __future__ import annotations

from importlib import import_module

from sglang_ascend.kernels.spec import KernelSpec

KERNEL_MODULES: tuple[str, ...] = (
    "dispatch_pack",
    "dispatch_unpack",
    "dynamic_quant",
    "expert_order",
    "gate_topk_grouped_sigmoid",
    "gqa_attention",
    "kv_rmsnorm_rope_write",
    "mla_decode",
    "moe_permute",
    "moe_unpermute",
    "quant_grouped_matmul",
    "rms_norm_quant",
    "rope_halves",
    "split_combine",
    "swiglu_quant",
)


def load_all() -> dict[str, KernelSpec]:
    """Import every kernel file; return the specs by name, in the order of `KERNEL_MODULES`."""
    specs: dict[str, KernelSpec] = {}
    for module in KERNEL_MODULES:
        for spec in import_module(f"sglang_ascend.kernels.{module}").KERNELS:
            if spec.name in specs:
                raise ValueError(f"two kernels are called {spec.name}; the second is in {module}")
            specs[spec.name] = spec
    return specs
