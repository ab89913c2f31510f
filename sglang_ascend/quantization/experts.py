"""Experts in INT8 under SGLang: how their weights are loaded. ``moe.experts`` runs them."""

from __future__ import annotations

import torch
from sglang.srt.layers.moe.fused_moe_triton import FusedMoeWeightScaleSupported
from sglang.srt.layers.quantization.base_config import FusedMoEMethodBase
from sglang.srt.utils import set_weight_attrs
from torch.nn import Parameter

from sglang_ascend.deploy.int8_layers import why_not
from sglang_ascend.errors import ConfigError
from sglang_ascend.moe.experts import forward_experts
from sglang_ascend.quantization.linear import CheckpointLayer, add_offset, empty_parameter
from sglang_ascend.quantization.weights import prepare_weight, quantise_weight


class Int8ExpertsMethod(CheckpointLayer, FusedMoEMethodBase):
    """Once loaded: w13_weight [experts, hidden, 2 * inter] and w2_weight [experts, inter, hidden]
    int8, their scales [experts, 2 * inter] and [experts, hidden] float32."""

    def create_weights(
        self,
        layer: torch.nn.Module,
        num_experts: int,
        hidden_size: int,
        intermediate_size_per_partition: int,
        params_dtype: torch.dtype,
        with_bias: bool = False,
        **extra_weight_attrs,
    ) -> None:
        """Parameters as SGLang's loader of experts fills them: [experts, out, in].

        Raises:
            ConfigError: experts that the operators do not take.
        """
        if with_bias:
            raise ConfigError(
                f"layer {self._layer} cannot take ascend_w8a8: its experts have a bias; drop "
                "--quantization"
            )
        shapes = {
            "w13": (num_experts, 2 * intermediate_size_per_partition, hidden_size),
            "w2": (num_experts, hidden_size, intermediate_size_per_partition),
        }
        own = extra_weight_attrs.pop("weight_loader")
        for name, shape in shapes.items():
            weight = empty_parameter(shape, torch.int8)
            reason = why_not(shape[1:], weight.device.type)
            if reason:
                raise ConfigError(f"layer {self._layer} cannot take ascend_w8a8: {reason}")
            scale = empty_parameter((*shape[:2], 1), torch.float32)
            layer.register_parameter(f"{name}_weight", weight)
            layer.register_parameter(f"{name}_weight_scale", scale)
            set_weight_attrs(weight, {"weight_loader": _loader(own, scale), **extra_weight_attrs})
            channel = {"quant_method": FusedMoeWeightScaleSupported.CHANNEL.value}
            set_weight_attrs(scale, {"weight_loader": own, **extra_weight_attrs, **channel})
            if self._with_offset:
                add_offset(layer, f"{name}_weight_offset", self._layer)

    def restore_weights_before_loading(self, layer: torch.nn.Module) -> None:
        """Back to the parameters of ``create_weights``: a running server gets new weights."""
        for name in ("w13", "w2"):
            weight, scale = getattr(layer, f"{name}_weight"), getattr(layer, f"{name}_weight_scale")
            experts, rows_in, rows_out = weight.shape
            weight.data = weight.new_empty(experts, rows_out, rows_in)
            scale.data = scale.new_full((experts, rows_out, 1), torch.nan)
            if self._with_offset:
                add_offset(layer, f"{name}_weight_offset", self._layer)

    def create_moe_runner(self, layer: torch.nn.Module, moe_runner_config) -> None:
        self.moe_runner_config = moe_runner_config

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        for name in ("w13", "w2"):
            weight, scale = getattr(layer, f"{name}_weight"), getattr(layer, f"{name}_weight_scale")
            missing = scale.isnan().flatten(1).any(1).nonzero().flatten().tolist()
            # A rank of the shared expert has no routed ones, and drops this storage.
            if missing and len(missing) < len(scale):
                raise ConfigError(
                    f"weight_scale in layer {self._layer}: those of experts {missing[:8]} of this "
                    "rank were not in the checkpoint; download it again"
                )
            weight.data = weight.data.transpose(1, 2)
            scale.data = scale.data.squeeze(2)
            setattr(layer, f"{name}_weight", prepare_weight(weight))
            if self._with_offset:
                delattr(layer, f"{name}_weight_offset")

    def apply(self, layer: torch.nn.Module, dispatch_output):
        return forward_experts(self, layer, dispatch_output)


def _loader(own, scale: Parameter):
    """Quantise a float weight [out, in] of one expert before SGLang picks this rank's part."""

    def load(
        param: Parameter, loaded: torch.Tensor, name: str, shard_id: str, expert_id: int
    ) -> None:
        place = {"shard_id": shard_id, "expert_id": expert_id}
        if loaded.is_floating_point():
            loaded, loaded_scale = quantise_weight(loaded.to(param.device))
            own(scale, loaded_scale, f"{name}_scale", **place)
        own(param, loaded, name, **place)

    return load
