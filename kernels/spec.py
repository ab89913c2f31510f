"""What a kernel file declares: the kernel, its configurations, its limits, its reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import triton

from sglang_ascend.ops.spec import NpuLimit, OperatorError

TARGETS = ("910B", "910C")


def ascend_kernel(fn: Callable) -> Any:
    """`triton.jit` that compiles one kernel for all values of its runtime arguments.

    Plain `triton.jit` makes a constant of every integer argument that happens to be 1, and what
    runs is then another kernel than the one that was checked.
    """
    names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
    runtime = [name for name in names if "constexpr" not in str(fn.__annotations__.get(name, ""))]
    return triton.jit(fn, do_not_specialize=runtime)


@dataclass(frozen=True)
class KernelConfig:
    """One way to compile a kernel.

    name: unique within the kernel. constexprs: a value for every `tl.constexpr` argument.
    dtype: what "*T" in the kernel's signature stands for, such as "bf16". options: compile options
    of triton-ascend, such as {"multibuffer": False}. targets: the chips it is meant for.
    """

    name: str
    constexprs: Mapping[str, int | float | bool]
    dtype: str = "bf16"
    options: Mapping[str, Any] = field(default_factory=dict)
    targets: tuple[str, ...] = TARGETS


@dataclass(frozen=True)
class Work:
    """What one call has to do at a shape, for the roofline page.

    cube_flops: floating-point (or integer) operations of matrix products, at the rate of
    `cube_dtype` ("bf16" or "int8"). moved_bytes: least traffic with HBM, each operand read once.
    """

    shape: str
    cube_flops: float
    moved_bytes: float
    cube_dtype: str = "bf16"


@dataclass(frozen=True)
class KernelSpec:
    """A kernel and everything that its checks need.

    name: unique.
    kernel: made by `ascend_kernel`; its runtime arguments come before its constexprs.
    signature: Triton type of every runtime argument, in order: "*bf16", "*fp32", "*i8", "i32",
        "fp32", ...; "*T" is a pointer to the configuration's dtype.
    configs: every configuration that may be launched.
    launcher: the Python function that users call.
    reference: name of the operator in `sglang_ascend/ops/` that defines the result, or
        "module:function" where no operator does.
    features: what the launcher accepts, by quantity.
    work: rows of the roofline page.
    """

    name: str
    kernel: Any
    signature: Mapping[str, str]
    configs: tuple[KernelConfig, ...]
    launcher: Callable[..., Any]
    reference: str
    features: Mapping[str, NpuLimit] = field(default_factory=dict)
    work: tuple[Work, ...] = ()

    def __post_init__(self):
        names = [config.name for config in self.configs]
        if len(set(names)) < len(names) or not names:
            raise OperatorError(f"{self.name}: needs configurations of different names: {names}")
        runtime = tuple(self.signature)
        for config in self.configs:
            given = (*runtime, *config.constexprs)
            taken = tuple(self.kernel.arg_names)
            if taken[: len(runtime)] != runtime or set(given) != set(taken):
                raise OperatorError(
                    f"{self.name}/{config.name}: signature and constexprs name {', '.join(given)};"
                    f" the kernel takes, in this order, {', '.join(taken)}"
                )

    def config(self, name: str) -> KernelConfig:
        """The configuration of that name."""
        for config in self.configs:
            if config.name == name:
                return config
        known = ", ".join(config.name for config in self.configs)
        raise OperatorError(f"{self.name} has no configuration {name!r}; it has: {known}")

    def types(self, config: KernelConfig) -> dict[str, str]:
        """The Triton type of each runtime argument under a configuration."""
        return {
            name: "*" + config.dtype if kind == "*T" else kind
            for name, kind in self.signature.items()
        }

    def require(self, device: str, **required: Any) -> None:
        """Raise `OperatorError` unless every required quantity lies in the declared features."""
        missing = [
            name
            for name, value in required.items()
            if name not in self.features or not self.features[name].accepts(value)
        ]
        if missing:
            raise OperatorError(
                f"{self.name}: required "
                + ", ".join(f"{name}={value}" for name, value in required.items())
                + "; supported "
                + ", ".join(f"{name} {limit}" for name, limit in self.features.items())
                + f"; missing {', '.join(f'{name}={required[name]}' for name in missing)}"
                + f"; device {device}"
            )
