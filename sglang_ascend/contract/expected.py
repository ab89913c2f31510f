"""What a reference returns at production sizes, without computing at production cost.

Shapes rarely depend on values. A reference is run on tensors without values (torch's meta device);
if it looks at a value, again with real indices and counts; if it then looks at another, on real
tensors.
Each of the three either gives the true shapes or refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from sglang_ascend.contract import outcome
from sglang_ascend.ops.spec import Operator

Build = Callable[[torch.device], dict[str, Any]]
_CPU = torch.device("cpu")


def expected_outcome(operator: Operator, build: Build) -> list[dict | None]:
    """`outcome.describe` of the results of an operator's reference.

    build: makes the arguments by name on a device. Raises whatever the reference raises on real
    tensors.
    """
    for valueless in (lambda dtype: True, _holds_activations):
        try:
            return _run(operator, build, valueless)
        except (NotImplementedError, RuntimeError):
            pass  # A value was looked at, or something is wrong: the next run has more of them.
    return _run(operator, build, lambda dtype: False)


def _holds_activations(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype == torch.int8


def _run(operator, build, valueless) -> list[dict | None]:
    with torch.no_grad():
        with _MetaWins(valueless):
            given = build(_CPU)
        # Tensors that the reference makes itself have values: it may keep them for later calls.
        with _MetaWins(lambda dtype: False):
            results = operator.reference(**given)
        return outcome.describe(outcome.comparable(operator.spec, results), given)


class _MetaWins(TorchDispatchMode):
    """Tensors with and without values may meet: what comes out has none.

    valueless: dtypes of which new tensors have no values.
    """

    def __init__(self, valueless: Callable[[torch.dtype], bool]) -> None:
        super().__init__()
        self._valueless = valueless

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if not tensors and self._valueless(kwargs.get("dtype") or torch.get_default_dtype()):
            kwargs["device"] = torch.device("meta")
        if not any(tensor.is_meta for tensor in tensors):
            return func(*args, **kwargs)
        if any(not tensor.is_meta for tensor in _written(func, args, kwargs)):
            raise NotImplementedError("a tensor with values would be given values that are unknown")
        args, kwargs = tree_map_only(
            torch.Tensor, lambda x: x if x.is_meta else x.to("meta"), (args, kwargs)
        )
        if kwargs.get("device") is not None:
            kwargs["device"] = torch.device("meta")
        return func(*args, **kwargs)


def _written(func, args, kwargs) -> list[torch.Tensor]:
    named = {**dict(zip((a.name for a in func._schema.arguments), args)), **kwargs}
    return [
        named[argument.name]
        for argument in func._schema.arguments
        if argument.alias_info is not None
        and argument.alias_info.is_write
        and isinstance(named.get(argument.name), torch.Tensor)
    ]
