"""``ascend_w8a8`` as SGLang's quantisation method: which layer gets which method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sglang.srt.layers.quantization.base_config import QuantizationConfig, QuantizeMethodBase

from sglang_ascend.deploy import checkpoint, int8_checkpoint, int8_description, model_folder
from sglang_ascend.deploy.int8_checkpoint import StoredLayers
from sglang_ascend.deploy.int8_layers import ABSORBED, SCHEME


class AscendW8A8Config(QuantizationConfig):
    """INT8 weights per output channel, dynamic INT8 activations per token, KV cache unquantised."""

    def __init__(self, stored: StoredLayers | None = None) -> None:
        """stored: how the checkpoint's layers are stored; a float one by default."""
        super().__init__()
        self._stored = stored or StoredLayers("float")

    def get_name(self) -> str:
        return SCHEME

    def get_supported_act_dtypes(self) -> list[torch.dtype]:
        return [torch.float32, torch.bfloat16, torch.float16]

    @classmethod
    def get_min_capability(cls) -> int:
        return 0

    @staticmethod
    def get_config_filenames() -> list[str]:
        return []

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> AscendW8A8Config:
        raise NotImplementedError("for_model makes it: config.json alone does not say enough")

    @classmethod
    def override_quantization_method(cls, hf_quant_cfg, user_quant) -> str | None:
        """Take over the INT8 checkpoints that SGLang would serve with its CUDA kernels."""
        return SCHEME if int8_description.kind_of_method(hf_quant_cfg or {}) else None

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> QuantizeMethodBase | None:
        """The method of one layer; None where SGLang's own float one applies.

        Args:
            prefix: the layer's name in SGLang's model.
        """
        from sglang.srt.layers.linear import LinearBase
        from sglang.srt.layers.moe.fused_moe_triton import FusedMoE
        from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod

        from sglang_ascend.quantization.experts import Int8ExpertsMethod
        from sglang_ascend.quantization.linear import DequantisedLinearMethod, Int8LinearMethod

        with_offset = self._stored.kind == "modelslim"
        if isinstance(layer, FusedMoE):
            int8 = self._stored.computes_int8(prefix)
            return Int8ExpertsMethod(prefix, with_offset) if int8 else None
        if not isinstance(layer, LinearBase):
            return None
        if not self._stored.computes_int8(prefix):
            return UnquantizedLinearMethod()
        method = DequantisedLinearMethod if prefix.endswith(ABSORBED) else Int8LinearMethod
        return method(prefix, with_offset)

    def get_scaled_act_names(self) -> list[str]:
        return []


def for_model(original, model_config, load_config, *args, **kwargs) -> QuantizationConfig:
    """Around SGLang's ``get_quant_config``: ours needs the names of the checkpoint's tensors."""
    if model_config.quantization != SCHEME:
        return original(model_config, load_config, *args, **kwargs)
    from sglang.srt.platforms import current_platform

    folder = Path(model_config.model_path)
    tensors = checkpoint.tensors(folder, load_config.load_format.value)
    config = model_folder.read_config(folder)
    device = current_platform.device_name
    return AscendW8A8Config(int8_checkpoint.read(folder, config, tensors, device))
