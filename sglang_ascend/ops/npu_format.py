"""Weight layouts of the Ascend cube unit."""

import torch

# ACL_FORMAT_FRACTAL_NZ.
_FRACTAL_NZ = 29


def to_fractal_nz(weight: torch.Tensor) -> torch.Tensor:
    """Convert an npu weight [..., in, out] to FRACTAL_NZ once, at load time.

    The tensor keeps its logical shape; only the matrix products of the NPU read it faster.
    """
    return torch.ops.npu.npu_format_cast(weight.contiguous(), _FRACTAL_NZ)
