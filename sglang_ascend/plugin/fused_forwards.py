"""SGLang's fused layers, forwarded to the operator boundary.

Upstream: ``BaseFusedOp.register_oot_forward(cls, fn, key)``; ``fn`` receives the layer as ``self``
and has the signature of the layer's ``forward_native``. Layers with a feature that our operator
does not have (a padded norm, an offset position) are sent to SGLang's own torch forward, which is
exact on both devices.
"""

from __future__ import annotations

import torch

from sglang_ascend.ops.add_rms_norm import add_rms_norm
from sglang_ascend.ops.rms_norm import rms_norm
from sglang_ascend.ops.rope import rope
from sglang_ascend.ops.swiglu import swiglu


def register() -> None:
    """Register the forwards; called in the processes that run the model."""
    from sglang.kernels.fused_op import BaseFusedOp
    from sglang.srt.layers.activation import SiluAndMul
    from sglang.srt.layers.layernorm import RMSNorm
    from sglang.srt.layers.quantization.unquant import UnquantizedFusedMoEMethod
    from sglang.srt.layers.rotary_embedding.base import RotaryEmbedding
    from sglang.srt.layers.rotary_embedding.rope_variant import DeepseekScalingRotaryEmbedding

    from sglang_ascend.moe.experts import forward_experts

    forwards = {
        RMSNorm: forward_rms_norm,
        SiluAndMul: forward_swiglu,
        RotaryEmbedding: forward_rope,
        DeepseekScalingRotaryEmbedding: forward_rope,
        UnquantizedFusedMoEMethod: forward_experts,
    }
    for layer, forward in forwards.items():
        BaseFusedOp.register_oot_forward(layer, forward, "native")


def forward_rms_norm(self, x, residual=None, post_residual_addition=None, quant_linear=None):
    """RMSNorm of [..., hidden]; with ``residual``, of their sum, which is returned as well."""
    if self.variance_size_override is not None or x.shape[-1] != self.hidden_size:
        return self.forward_native(x, residual, post_residual_addition)
    if residual is None:
        return rms_norm(x.reshape(-1, x.shape[-1]), self.weight, self.variance_epsilon).view(
            x.shape
        )
    if post_residual_addition is not None:
        residual = residual + post_residual_addition
    return add_rms_norm(x, residual, self.weight, self.variance_epsilon)


def forward_swiglu(self, x: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up of [tokens, 2 * intermediate]."""
    return swiglu(x)


def forward_rope(self, positions, query, key, offsets=None, fused_set_kv_buffer_arg=None):
    """Rotate the first ``rotary_dim`` columns of each head; shapes as they come."""
    if offsets is not None or self.rotary_dim != self.head_size:
        return self.forward_native(positions, query, key, offsets)
    tokens = positions.numel()
    rotated = rope(
        query.reshape(tokens, -1, self.head_size),
        key.reshape(tokens, -1, self.head_size),
        self.cos_sin_cache,
        positions.flatten(),
        interleaved=not self.is_neox_style,
    )
    return rotated[0].reshape(query.shape), rotated[1].reshape(key.shape)
