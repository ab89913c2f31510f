"""A recorded sequence of kernel calls that can run again without the Python that issued it.

What a CUDA graph is to a GPU: the tensors of the recorded run stay where they are, and a replay
calls the same kernels on the same addresses. New inputs are written into the old input tensors. A
decode step of a small model is mostly Python between kernels, and none of that runs again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sglang_ascend.native import library

aten = torch.ops.aten
_ALLOCATES = {
    aten.empty.memory_format,
    aten.new_empty.default,
    aten.empty_like.default,
    aten.empty_strided.default,
    aten.new_empty_strided.default,
}
#: Operators of torch that may be recorded, each as the call that fills the recorded result.
_REPEATS = {
    aten.embedding.default: lambda out, weight, ids, *_: torch.index_select(
        weight, 0, ids, out=out
    ),
    aten.index_select.default: lambda out, *args: torch.index_select(*args, out=out),
    aten.clone.default: lambda out, source: out.copy_(source),
    aten.add.Tensor: lambda out, *args: torch.add(*args, out=out),
    aten.mul.Tensor: lambda out, *args: torch.mul(*args, out=out),
    aten.mm.default: lambda out, *args: torch.mm(*args, out=out),
    aten.addmm.default: lambda out, *args: torch.addmm(*args, out=out),
    aten.bmm.default: lambda out, *args: torch.bmm(*args, out=out),
}


class Recording(TorchDispatchMode):
    """Records what runs within it. Views and allocations need no repeating.

    refused: the first operator that cannot be repeated, None if there was none. The run itself is
    as it would have been in any case.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refused: str | None = None
        self._calls: list[tuple[Callable, tuple]] = []
        # Addresses are in the calls: nothing that lived during the run may be freed.
        self._kept: list = []
        self._results: list[torch.Tensor] = []
        self._depth = 0

    def __enter__(self):
        # Entered again below, for the parts of a composite operator.
        self._depth += 1
        library.tape = self._calls
        return super().__enter__()

    def __exit__(self, *exception):
        self._depth -= 1
        if self._depth == 0:
            library.tape = None
        return super().__exit__(*exception)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        result = func(*args, **kwargs)
        self._kept.append(result)
        repeat = _REPEATS.get(func)
        # clone has a memory format, which its result has already.
        if repeat is not None and (not kwargs or func is aten.clone.default):
            self._calls.append((repeat, (result, *args)))
        elif func not in _ALLOCATES and not _is_view(func):
            self.refused = self.refused or str(func)
        if repeat is not None or func in _ALLOCATES:
            self._results.append(result)
        return result

    def erase(self) -> None:
        """Overwrite every result of the recorded run: a replay cannot pass on an old one."""
        for result in self._results:
            result.fill_(float("nan") if result.is_floating_point() else 0)

    def replay(self) -> None:
        """Run the calls again, in order, on what the input tensors now hold.

        Raises:
            IndexError: a kernel was given a position or a slot that does not exist.
        """
        for function, arguments in self._calls:
            outcome = function(*arguments)
            if type(outcome) is int and outcome:
                raise IndexError(f"{function.__name__}: a position or slot is out of range")

    @cached_property
    def nbytes(self) -> int:
        """Memory of the results, which the recording alone keeps from being freed.

        Views of weights and of the cache are kept too, and belong to the model.
        """
        return sum(result.untyped_storage().nbytes() for result in self._results)


def _is_view(func) -> bool:
    returns = func._schema.returns
    return (
        func is aten._unsafe_view.default
        or bool(returns)
        and all(
            result.alias_info is not None and not result.alias_info.is_write for result in returns
        )
    )
