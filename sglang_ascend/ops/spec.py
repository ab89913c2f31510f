"""What an operator is: its specification, its reference and its NPU call.

An operator file defines `SPEC`, `reference`, `npu` and `CONTRACT`, and binds them with `Operator`.
Named axes make the shapes of all arguments one statement: the same name means the same size.
"""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import torch

from sglang_ascend.ops.axes import AxisBinding
from sglang_ascend.ops.call_shapes import CallRecorder

CHECK_OPS_ENV = "SGLANG_ASCEND_CHECK_OPS"
_RECORD = "record="

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
HALVES = (torch.bfloat16, torch.float16)
INTS = (torch.int32, torch.int64)


class OperatorError(ValueError):
    """An operator was called with arguments that its specification or the NPU does not allow."""


@dataclass(frozen=True)
class TensorSpec:
    """One tensor argument or result.

    axes: a name, a fixed size, or an expression over names such as "2*inter" for each dimension.
    dtypes: the accepted dtypes; empty means the dtype of the argument called `like`.
    """

    axes: tuple[str | int, ...]
    dtypes: tuple[torch.dtype, ...] = ()
    like: str = ""
    optional: bool = False


@dataclass(frozen=True)
class Opaque:
    """A result that only the operator named by `read_by` may look into; it differs by device."""

    read_by: str


@dataclass(frozen=True)
class NpuLimit:
    """A bound that the NPU operator has and the reference has not.

    Exactly one of `allowed`, `maximum` and `multiple_of` is given. source: who states the bound.
    """

    source: str
    allowed: tuple[Any, ...] = ()
    maximum: int | None = None
    multiple_of: int | None = None

    def accepts(self, value: Any) -> bool:
        if self.allowed:
            return value in self.allowed
        if self.maximum is not None:
            return value <= self.maximum
        return value % self.multiple_of == 0

    def __str__(self) -> str:
        if self.allowed:
            return "one of " + ", ".join(str(value) for value in self.allowed)
        if self.maximum is not None:
            return f"at most {self.maximum}"
        return f"a multiple of {self.multiple_of}"


@dataclass(frozen=True)
class Tolerance:
    """How far the NPU result may be from the reference, by dtype, and why."""

    reason: str
    float32: float = 0.0
    bfloat16: float = 0.0
    float16: float = 0.0


@dataclass(frozen=True)
class OperatorSpec:
    """The contract of one operator: shapes, dtypes, what is written in place, what the NPU needs.

    npu_operators: qualified torch_npu operators that `npu` calls; empty if it is made of aten.
    npu_limits: bounds of the NPU operator by quantity ("page_size", "head_dim", ...).
    values: check of values, called with the arguments by name; raises `OperatorError`.
    """

    name: str
    summary: str
    source: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec | Opaque]
    tolerance: Tolerance
    mutates: tuple[str, ...] = ()
    npu_operators: tuple[str, ...] = ()
    npu_limits: Mapping[str, NpuLimit] = field(default_factory=dict)
    values: Callable[[Mapping[str, Any]], None] | None = None

    def check_inputs(self, arguments: Mapping[str, Any]) -> AxisBinding:
        """Raise `OperatorError` unless the arguments fit; return the size of each named axis."""
        binding = AxisBinding()
        for name, spec in self.inputs.items():
            self._check_tensor(name, spec, arguments.get(name), arguments, binding)
        self._check_axes(binding)
        if self.values is not None:
            self.values(arguments)
        return binding

    def check_outputs(
        self, results: Any, arguments: Mapping[str, Any], binding: AxisBinding
    ) -> None:
        """Raise `OperatorError` unless the results fit the specification and the axes."""
        results = () if results is None else results
        values = results if isinstance(results, tuple) else (results,)
        if len(values) != len(self.outputs):
            raise OperatorError(
                f"{self.name}: expected {len(self.outputs)} results, got {len(values)}"
            )
        for (name, spec), value in zip(self.outputs.items(), values):
            if not isinstance(spec, Opaque):
                self._check_tensor(name, spec, value, arguments, binding)
        self._check_axes(binding)

    def require_npu(self, quantity: str, value: Any) -> None:
        """Raise `OperatorError` unless the NPU operator accepts `value` for `quantity`."""
        limit = self.npu_limits[quantity]
        if not limit.accepts(value):
            raise OperatorError(
                f"{self.name} on npu: {quantity} is {value}, allowed is {limit} ({limit.source})"
            )

    def require_contiguous(self, **tensors: torch.Tensor) -> None:
        """Raise `OperatorError` unless the NPU operator can address the tensors without strides."""
        for argument, tensor in tensors.items():
            if not tensor.is_contiguous():
                raise OperatorError(
                    f"{self.name} on npu: {argument} must be contiguous, got shape"
                    f" {list(tensor.shape)} with strides {list(tensor.stride())}"
                )

    def _check_tensor(self, name, spec, value, arguments, binding) -> None:
        if value is None:
            if spec.optional:
                return
            raise OperatorError(
                f"{self.name}: {name} is missing, expected a tensor {list(spec.axes)}"
            )
        if not isinstance(value, torch.Tensor):
            raise OperatorError(f"{self.name}: {name} must be a tensor, got {type(value).__name__}")
        if value.dim() != len(spec.axes):
            raise OperatorError(
                f"{self.name}: {name} must have {len(spec.axes)} axes {list(spec.axes)}, got shape"
                f" {list(value.shape)}"
            )
        dtypes = spec.dtypes or (arguments[spec.like].dtype,)
        if value.dtype not in dtypes:
            accepted = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
            got = str(value.dtype).removeprefix("torch.")
            raise OperatorError(f"{self.name}: {name} must be {accepted}, got {got}")
        binding.bind(name, spec.axes, value.shape)

    def _check_axes(self, binding: AxisBinding) -> None:
        mismatch = binding.mismatch()
        if mismatch:
            raise OperatorError(f"{self.name}: {mismatch}")


@dataclass(frozen=True)
class ContractCase:
    """Shapes at which `npu` is checked against the reference without a chip.

    label: the model and the step that has these shapes. build: makes the keyword arguments of the
    operator on a device, with tensors of the given dtype (their values are not used).
    """

    label: str
    build: Callable[[torch.device, torch.dtype], dict[str, Any]]
    dtype: torch.dtype = torch.bfloat16


@dataclass(frozen=True)
class Operator:
    """An operator that runs its NPU call on npu tensors, and on all others what a CPU has.

    host: the reference's result from a native kernel, for speed alone; it returns `NotImplemented`,
    before any effect, for arguments that the kernel does not take, and the reference runs.
    """

    spec: OperatorSpec
    reference: Callable[..., Any]
    npu: Callable[..., Any]
    contract: tuple[ContractCase, ...]
    host: Callable[..., Any] | None = None

    def __call__(self, *args, **kwargs):
        if _device_type(args, kwargs) == "npu":
            run = self.npu
        else:
            run = self.reference if self.host is None else self._on_host
        # Read per call: one dictionary look-up, and a test or a debugging session can switch it on.
        setting = os.environ.get(CHECK_OPS_ENV, "0")
        if setting == "0":
            return run(*args, **kwargs)
        folder = setting.removeprefix(_RECORD)
        if setting != "1" and folder in ("", setting):
            raise OperatorError(
                f"{CHECK_OPS_ENV} must be 0 or 1 or {_RECORD}FOLDER, got {setting!r}"
            )
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        binding = self.spec.check_inputs(bound.arguments)
        if setting != "1":
            _recorder(folder).record(self.spec.name, bound.arguments)
        results = run(*args, **kwargs)
        self.spec.check_outputs(results, bound.arguments, binding)
        return results

    def _on_host(self, *args, **kwargs):
        result = self.host(*args, **kwargs)
        return self.reference(*args, **kwargs) if result is NotImplemented else result

    @cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.reference)


@lru_cache(maxsize=1)
def _recorder(folder: str) -> CallRecorder:
    return CallRecorder(folder)


def _device_type(args, kwargs) -> str:
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            return value.device.type
    raise OperatorError("an operator needs at least one tensor argument to choose its device")
