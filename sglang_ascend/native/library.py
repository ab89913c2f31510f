"""The compiled kernels, loaded once a process; absent where there is no compiler."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

from sglang_ascend.errors import ConfigError
from sglang_ascend.native import build

#: 0 keeps the reference device on its torch references.
NATIVE_ENV = "SGLANG_ASCEND_NATIVE"

_P, _I, _F = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
_SIGNATURES = {
    "rms_norm": (None, (*[_P] * 5, *[_I] * 3, _F)),
    "swiglu": (None, (_P, _P, _I, _I)),
    "dynamic_quant": (None, (*[_P] * 3, *[_I] * 3)),
    "screened_logits": (None, (*[_P] * 5, *[_I] * 5)),
    "argmax": (None, (_P, _P, *[_I] * 3)),
    "rope": (ctypes.c_int, (*[_P] * 6, *[_I] * 9)),
    "write_rows": (ctypes.c_int, (*[_P] * 3, *[_I] * 5)),
    "lanes": (_I, ()),
    "int8_packed_bytes": (_I, (_I, _I, _I)),
    "int8_wide_bytes": (_I, (_I, _I)),
    "pack_int8": (None, (_P, _P, *[_I] * 3)),
    "float_matmul_most_rows": (_I, ()),
    "float_matmul": (None, (*[_P] * 5, *[_I] * 6)),
    "int8_matmul": (None, (*[_P] * 7, *[_I] * 3)),
    "paged_attention": (None, (_P,)),
}


def int64s(values) -> ctypes.Array:
    """Host integers as a kernel takes them, without a tensor in between."""
    return (_I * len(values))(*values)


#: Where a list, every call of a kernel is appended to it as (function, arguments).
tape: list | None = None


def call(function, *arguments):
    """Run a kernel, and note the call while a tape is running."""
    result = function(*arguments)
    if tape is not None:
        tape.append((function, arguments))
    return result


@cache
def kernels() -> ctypes.CDLL | None:
    """The library with the signature of every function set; None without one (said once)."""
    if os.environ.get(NATIVE_ENV) == "0":
        return None
    try:
        loaded = ctypes.CDLL(str(build.library()))
    except (ConfigError, OSError) as error:
        print(
            f"sglang_ascend: no native kernels, the reference device runs several times slower: "
            f"{error}",
            file=sys.stderr,
        )
        return None
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded
