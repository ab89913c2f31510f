"""Refuse parameters whose types the scheduler cannot decode.

SGLang declares the types of the parameters that it sends between processes. With its typed messages
(SGLANG_USE_PICKLE_IPC=0) the receiving scheduler ends on a value of another type, with pickled ones
it computes with it. So the types are checked before anything is sent, by the library that decodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from sglang_ascend.frontend.refusal import RequestRefused, shown

#: Fields that SGLang fills in itself; from a client they would skip its own checks.
_INTERNAL = {
    "is_normalized",
    "stop_strs",
    "stop_regex_strs",
    "stop_str_max_len",
    "stop_regex_max_len",
}

#: SGLang puts the default in the place of every null but these.
_NOT_NULL = {"ebnf_full_assistant"}


def check_wire_types(request: Any) -> None:
    """Check names and types of the sampling and session parameters of one request.

    Raises:
        RequestRefused: naming the parameter, its value and the type that it must have.
    """
    params = request.sampling_params
    for one in params if isinstance(params, list) else [params or {}]:
        _check("sampling_params", one, _sampling_types())
    _check("session_params", getattr(request, "session_params", None) or {}, _session_types())


def _check(where: str, params: Any, types: Mapping[str, Any]) -> None:
    if not isinstance(params, Mapping):
        raise RequestRefused(f"{where} = {shown(params)} is refused: it must be an object.")
    for key, value in params.items():
        if key not in types:
            raise RequestRefused(
                f"{where}.{key} is refused: there is no such parameter; "
                f"there are {', '.join(sorted(types))}."
            )
        if value is None and key not in _NOT_NULL:
            continue
        try:
            msgspec.convert(value, types[key])
        except msgspec.ValidationError as error:
            raise RequestRefused(f"{where}.{key} = {shown(value)} is refused: {error}.") from None


@cache
def _sampling_types() -> dict[str, Any]:
    from sglang.srt.sampling.sampling_params import SamplingParams

    types = {field.name: field.type for field in msgspec.structs.fields(SamplingParams)}
    types["watermark"] = Any  # SGLang checks and converts it itself
    return {name: kind for name, kind in types.items() if name not in _INTERNAL}


@cache
def _session_types() -> dict[str, Any]:
    from sglang.srt.managers.io_struct import SessionParams

    return {field.name: field.type for field in msgspec.structs.fields(SessionParams)}
