"""The header of a safetensors file, checked against the file's size.

Format (safetensors README): 8 bytes little-endian header length N, N bytes of JSON that map a
tensor's name to dtype, shape and byte range, then the data, which the ranges cover exactly.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from sglang_ascend.errors import ConfigError

_MAX_HEADER_BYTES = 100_000_000  # the format's own limit
_LFS_POINTER = b"version https://git-lfs"
DTYPE_BYTES = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
}


@dataclass(frozen=True)
class TensorInfo:
    """One tensor as the header describes it; ``dtype`` in safetensors' spelling (``BF16``)."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


def read(path: Path) -> list[TensorInfo]:
    """Return the tensors of ``path`` without reading their data.

    Raises:
        ConfigError: the file is unreadable, truncated, too long, or no safetensors file.
    """
    try:
        size = path.stat().st_size
        with open(path, "rb") as handle:
            start = handle.read(8)
            length = int.from_bytes(start, "little")
            if start == _LFS_POINTER[:8]:
                raise _bad(path, "is a Git LFS pointer", "run `git lfs pull` in its folder")
            if len(start) < 8 or length > size - 8:
                raise _truncated(path, size, 8 + length if len(start) == 8 else 8)
            if length > _MAX_HEADER_BYTES:
                raise _bad(path, f"has a header of {length} bytes, the format allows 100000000")
            header = json.loads(handle.read(length))
        header.pop("__metadata__", None)
        tensors = [_tensor(path, name, entry) for name, entry in header.items()]
        data_end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        if isinstance(error, ConfigError):
            raise
        raise _bad(path, f"has an unreadable header ({type(error).__name__}: {error})") from error
    if size != 8 + length + data_end:
        raise _truncated(path, size, 8 + length + data_end)
    return tensors


def _tensor(path: Path, name: str, entry: dict) -> TensorInfo:
    tensor = TensorInfo(name, entry["dtype"], tuple(entry["shape"]))
    begin, end = entry["data_offsets"]
    width = DTYPE_BYTES.get(tensor.dtype)
    if width is not None and end - begin != tensor.elements * width:
        raise _bad(
            path,
            f"gives {name} {end - begin} bytes where {tensor.dtype} {list(tensor.shape)} takes "
            f"{tensor.elements * width}",
        )
    return tensor


def _truncated(path: Path, size: int, expected: int) -> ConfigError:
    state = "truncated" if size < expected else "too long"
    return _bad(path, f"is {state}: {size} bytes, its header asks for {expected}")


def _bad(path: Path, what: str, remedy: str = "download it again") -> ConfigError:
    return ConfigError(f"weight file {path} {what}; {remedy}")
