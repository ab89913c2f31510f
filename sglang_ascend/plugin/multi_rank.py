"""Collectives and data-parallel attention of SGLang on devices other than CUDA.

SGLang decides by ``is_cpu()``, which a plug-in's platform never satisfies, whether to call
``torch.distributed`` directly; otherwise it goes through custom operators that it registers for
PrivateUse1 only. The direct calls are right for gloo and for HCCL.
"""

from __future__ import annotations

import torch

#: Value of SGLang's ``_is_cpu`` flags where the plain ``torch.distributed`` branch hangs on them.
CALLS_TORCH_DISTRIBUTED = True


def copy_rows(dst, src, dim: int, offset: torch.Tensor, sz: torch.Tensor, offset_src: bool) -> None:
    """Replaces ``dp_attention.memcpy_func``: ``sz`` rows from or to row ``offset``.

    Args:
        dst, src: tensors with equal trailing shapes.
        dim: 0.
        offset, sz: integer tensors with one element (a start row and a number of rows).
        offset_src: whether ``offset`` counts in ``src``; otherwise in ``dst``.
    """
    if dim != 0:
        raise ValueError(f"rows are copied along dim 0 only, got dim {dim}")
    start, rows = int(offset), int(sz)
    if offset_src:
        rows = min(rows, src.shape[0] - start, dst.shape[0])
        dst[:rows].copy_(src[start : start + rows])
    else:
        rows = min(rows, dst.shape[0] - start, src.shape[0])
        dst[start : start + rows].copy_(src[:rows])


def inplace_all_reduce(tensor: torch.Tensor, group_name: str) -> None:
    """Replaces ``parallel_state.inplace_all_reduce``: sum over the ranks of a named group."""
    from sglang.srt.distributed import parallel_state

    parallel_state._groups[group_name]()._all_reduce_in_place(tensor)
