"""Refuse a request whose numbers cannot be used as the sizes and indices that they become.

Pure: reads a request object before SGLang normalises it, raises ``RequestRefused`` or returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sglang_ascend.frontend.limits import Limits
from sglang_ascend.frontend.refusal import RequestRefused, is_integer, is_number, shown
from sglang_ascend.frontend.request_bounds import (
    REQUEST_BOUNDS,
    SAMPLING_BOUNDS,
    SESSION_BOUNDS,
    Bound,
)
from sglang_ascend.frontend.request_shape import check_shape

_TOKEN_IDS = next(
    replace(bound, openai="") for bound in REQUEST_BOUNDS if bound.field == "input_ids"
)


def check_request(request: Any, limits: Limits) -> None:
    """Check every bounded number of one request, single or batch.

    Args:
        request: a ``GenerateReqInput`` or ``EmbeddingReqInput``, not yet normalised.
        limits: what the model and the server allow.

    Raises:
        RequestRefused: naming the first field, value and bounds that do not fit.
    """
    for bound in REQUEST_BOUNDS:
        value = getattr(request, bound.field, None)
        if value is not None:
            _check(bound, bound.field, value, limits)
    params = request.sampling_params
    for where, one in _each(params, "sampling_params"):
        _check_keys(SAMPLING_BOUNDS, where, one, limits)
        _check_custom(f"{where}.custom_params", one.get("custom_params"))
    session = getattr(request, "session_params", None)
    if session is not None:
        _check_keys(SESSION_BOUNDS, "session_params", session, limits)
    check_shape(request, limits)


def _each(value: Any, name: str) -> Iterable[tuple[str, Mapping]]:
    """The mappings in a field that holds one mapping or a list of them, with their names."""
    many = isinstance(value, list)
    for i, one in enumerate(value if many else [] if value is None else [value]):
        where = f"{name}[{i}]" if many else name
        if not isinstance(one, Mapping):
            raise RequestRefused(f"{where} = {shown(one)} is refused: it must be an object.")
        yield where, one


def _check_keys(bounds: tuple[Bound, ...], where: str, params: Mapping, limits: Limits) -> None:
    for bound in bounds:
        value = params.get(bound.field)
        if value is None:
            continue
        name = f"{where}.{bound.field}"
        listed = isinstance(value, list | tuple | set)
        if listed != (bound.kind == "ids"):
            wanted = {"ids": "list of integers", "id keys": "object"}.get(bound.kind, bound.kind)
            raise RequestRefused(f"{name} = {shown(value)} is refused: it must be one {wanted}.")
        _check(bound, name, value, limits)


def _check(bound: Bound, name: str, value: Any, limits: Limits) -> None:
    low, high = bound.lower(limits), bound.upper(limits)
    if bound.kind == "id keys":
        _check_mapping(bound, name, value, low, high)
    elif isinstance(value, list | tuple | set):
        _check_items(bound, name, list(value), limits)
    else:
        _require(_fits(bound, value, low, high), bound, name, value, low, high)


def _fits(bound: Bound, value: Any, low: float, high: float) -> bool:
    known = is_number(value) if bound.kind == "number" else is_integer(value)
    return known and low <= value <= high


def _check_items(bound: Bound, name: str, items: list, limits: Limits) -> None:
    """One value per prompt, or a list of ids, or one list of ids per prompt."""
    low, high = bound.lower(limits), bound.upper(limits)
    if set(map(type, items)) == {int} and low <= min(items) and max(items) <= high:
        return  # quick, for long prompts
    nested = bound.kind == "ids" and any(isinstance(item, list) for item in items)
    for i, item in enumerate(items):
        if item is None and (nested or bound.kind != "ids"):
            continue  # this prompt does without
        if nested and isinstance(item, list) and not any(isinstance(x, list) for x in item):
            _check_items(bound, f"{name}[{i}]", item, limits)
        else:
            fits = not nested and _fits(bound, item, low, high)
            _require(fits, bound, f"{name}[{i}]", item, low, high)


def _check_mapping(bound: Bound, name: str, value: Any, low: float, high: float) -> None:
    if not isinstance(value, Mapping):
        raise RequestRefused(f"{name} = {shown(value)} is refused: it must be an object.")
    smallest, largest = bound.values
    for key, number in value.items():
        # int() also takes "1_0", " 1" and digits of other scripts.
        plain = isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 20
        _require(plain and low <= int(key) <= high, bound, f"a key of {name}", key, low, high)
        if not (is_number(number) and smallest <= number <= largest):
            raise RequestRefused(
                f"{name}[{shown(key)}] = {shown(number)} is refused: "
                f"it must be a number in [{smallest:g}, {largest:g}]."
            )


def _require(ok: bool, bound: Bound, name: str, value: Any, low: float, high: float) -> None:
    if not ok:
        also = f" (OpenAI: {bound.openai})" if bound.openai not in ("", bound.field) else ""
        allowed = (
            f"a number in [{low:g}, {high:g}]"
            if bound.kind == "number"
            else f"an integer in [{low}, {high}]"
        )
        raise RequestRefused(f"{name}{also} = {shown(value)} is refused: it must be {allowed}.")


def _check_custom(where: str, value: Any) -> None:
    """Custom parameters have no meaning here, but they travel as 64-bit numbers."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_custom(f"{where}.{key}", item)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _check_custom(f"{where}[{i}]", item)
    elif isinstance(value, int | float) and not (isinstance(value, bool) or is_number(value)):
        raise RequestRefused(
            f"{where} = {shown(value)} is refused: it must be a finite number of 64 bits."
        )


def check_token_ids(name: str, ids: Any, limits: Limits) -> None:
    """Check a list of token ids, or a list of such lists, that is not part of a request."""
    _check(_TOKEN_IDS, name, ids, limits)
