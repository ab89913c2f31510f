"""Everything before absorbed MLA attention: the whole fused operator, or pieces around it.

`npu_mla_prolog_v3` (`ops/mla_prolog.py`) is used wherever its declared features cover the call.
Elsewhere, the products are torch's or `quant_matmul`, and norm, rotation, quantisation and cache
write are the kernels of this folder. Which of the two runs depends on dtypes, sizes and declared
facts of the call alone, never on what happened to import.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

import torch

from sglang_ascend.kernels.kv_rmsnorm_rope_write import SPEC as CACHE_WRITE
from sglang_ascend.kernels.kv_rmsnorm_rope_write import kv_rmsnorm_rope_write_launch
from sglang_ascend.kernels.launching import Backend, npu_backend
from sglang_ascend.kernels.quant_grouped_matmul import quant_matmul_launch
from sglang_ascend.kernels.rms_norm_quant import RMS_NORM_QUANT, rms_norm_quant_launch
from sglang_ascend.kernels.rope_halves import SPEC as ROPE
from sglang_ascend.kernels.rope_halves import rope_halves_launch
from sglang_ascend.ops import mla_prolog as whole
from sglang_ascend.ops.rms_norm import rms_norm
from sglang_ascend.ops.spec import NpuLimit, OperatorError

_TORCH_NPU = "2.13.0"
_DOC = "npu_mla_prolog_v3 as ops/mla_prolog.py calls it"


@dataclass(frozen=True)
class PrologCall:
    """What decides how a call is made.

    device: torch device type. padding_slots: whether slots may be negative, for tokens that are
    padding. int8_up_projection: whether w_uq_qr is INT8. tables_dtype: of cos_sin.
    """

    device: str
    dtype: torch.dtype
    hidden: int
    q_lora: int
    heads: int
    kv_lora: int
    nope_dim: int
    rotary_dim: int
    page_size: int
    padding_slots: bool
    int8_up_projection: bool
    tables_dtype: torch.dtype


WHOLE: dict[str, NpuLimit] = {
    "device": NpuLimit(_DOC, allowed=("npu",)),
    **whole.SPEC.npu_limits,
    "padding_slots": NpuLimit(_DOC, allowed=(False,)),
    "int8_up_projection": NpuLimit(_DOC, allowed=(False,)),
}
PIECES: dict[str, NpuLimit] = {
    "dtype": CACHE_WRITE.features["dtype"],
    "q_lora": RMS_NORM_QUANT.features["hidden"],
    "kv_lora": CACHE_WRITE.features["kv_lora"],
    "rotary_dim": ROPE.features["rotary"],
    "tables_dtype": CACHE_WRITE.features["tables_dtype"],
}


def choose_path(call: PrologCall) -> Literal["whole", "pieces"]:
    """The fused operator where its features cover the call, the pieces where theirs do.

    Raises `OperatorError` with what both support and what is missing where neither does.
    """
    lacking = {name: _missing(call, features) for name, features in _PATHS.items()}
    for path, missing in lacking.items():
        if not missing:
            return path
    required = ", ".join(f"{name}={value}" for name, value in asdict(call).items())
    parts = [
        f"{path} supports " + ", ".join(f"{name} {limit}" for name, limit in features.items())
        for path, features in _PATHS.items()
    ]
    missing = "; ".join(f"{path} lacks {', '.join(names)}" for path, names in lacking.items())
    raise OperatorError(
        f"mla_prolog: required {required}; supported: {'; '.join(parts)}; missing: {missing};"
        f" device {call.device}"
    )


_PATHS: dict[Literal["whole", "pieces"], dict[str, NpuLimit]] = {"whole": WHOLE, "pieces": PIECES}


def _missing(call: PrologCall, features: dict[str, NpuLimit]) -> list[str]:
    values = asdict(call)
    return [f"{n}={values[n]}" for n, limit in features.items() if not limit.accepts(values[n])]


def mla_prolog_launch(
    x: torch.Tensor,
    w_dq: torch.Tensor,
    w_uq_qr: torch.Tensor,
    w_uk: torch.Tensor,
    w_dkv_kr: torch.Tensor,
    q_norm: torch.Tensor,
    kv_norm: torch.Tensor,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    latent_cache: torch.Tensor,
    rope_cache: torch.Tensor,
    slots: torch.Tensor,
    eps: float,
    w_uq_qr_scale: torch.Tensor | None = None,
    padding_slots: bool = False,
    on: Backend | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Arguments and results of `ops/mla_prolog.py`, plus:

    w_uq_qr_scale [heads * (nope + rotary)] float32: w_uq_qr is INT8, and the normalised query
    latents are quantised per token for it. padding_slots: slots may be negative, and are skipped.
    The whole operator takes the weights as `npu_format.to_fractal_nz` leaves them.
    """
    on = on or npu_backend(x)
    heads, nope, kv_lora = w_uk.shape
    call = PrologCall(
        device=on.device,
        dtype=x.dtype,
        hidden=x.shape[1],
        q_lora=w_dq.shape[1],
        heads=heads,
        kv_lora=kv_lora,
        nope_dim=nope,
        rotary_dim=cos_sin.shape[1],
        page_size=latent_cache.shape[1],
        padding_slots=padding_slots,
        int8_up_projection=w_uq_qr_scale is not None,
        tables_dtype=cos_sin.dtype,
    )
    cache = (cos_sin, positions, latent_cache, rope_cache, slots, eps)
    if choose_path(call) == "whole":
        _require_operator()
        return whole.npu(x, w_dq, w_uq_qr, w_uk, w_dkv_kr, q_norm, kv_norm, *cache)
    query = _query(x @ w_dq, q_norm, w_uq_qr, w_uq_qr_scale, eps, on).view(len(x), heads, -1)
    kv_rmsnorm_rope_write_launch(x @ w_dkv_kr, kv_norm, *cache, on)
    query_latent = torch.bmm(query[..., :nope].transpose(0, 1), w_uk).transpose(0, 1).contiguous()
    return query_latent, rope_halves_launch(query[..., nope:], cos_sin, positions, on)


def _require_operator() -> None:
    """Raise `OperatorError` if the installed torch_npu lacks the whole operator."""
    if hasattr(torch.ops.npu, "npu_mla_prolog_v3"):
        return
    try:
        found = f"torch_npu {version('torch_npu')} is installed"
    except PackageNotFoundError:
        found = "torch_npu is not installed"
    raise OperatorError(
        f"mla_prolog: npu_mla_prolog_v3 is missing, {found}; it is part of torch_npu"
        f" {_TORCH_NPU}: run `pip install torch=={_TORCH_NPU} torch_npu=={_TORCH_NPU}`"
    )


def _query(
    latent: torch.Tensor,
    q_norm: torch.Tensor,
    w_uq_qr: torch.Tensor,
    scale: torch.Tensor | None,
    eps: float,
    on: Backend,
) -> torch.Tensor:
    if scale is None:
        return rms_norm(latent, q_norm, eps) @ w_uq_qr
    q, q_scale = rms_norm_quant_launch(latent, q_norm, eps, on)
    return quant_matmul_launch(q, q_scale, w_uq_qr, scale, latent.dtype, on)
