"""Linear layers in INT8 under SGLang: loading, and ``dynamic_quant`` before ``quant_matmul``.

A float weight is quantised as it arrives from the checkpoint, whole rows before they are split over
ranks, so that no more than one of them is in memory and every rank has the scales that
``python -m sglang_ascend.quantize`` writes.
"""

from __future__ import annotations

import threading

import torch
from sglang.srt.layers.quantization.base_config import LinearMethodBase
from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod
from sglang.srt.utils import set_weight_attrs
from torch.nn import Parameter

from sglang_ascend.deploy.int8_layers import why_not
from sglang_ascend.errors import ConfigError
from sglang_ascend.ops.dynamic_quant import dynamic_quant
from sglang_ascend.ops.quant_matmul import quant_matmul
from sglang_ascend.quantization.weights import (
    dequantise_weight,
    prepare_weight,
    quantise_weight,
)


def add_offset(module: torch.nn.Module, name: str, layer: str) -> None:
    """A parameter for a checkpoint's offset, of which nothing is kept.

    Its loader raises ConfigError, which names ``layer``, for an offset that is not zero.
    """

    def load(param: Parameter, offset: torch.Tensor, *args, **kwargs) -> None:
        if bool(offset.any()):
            largest = float(offset.float().abs().max())
            raise ConfigError(
                f"weight_offset in layer {layer}: expected zeros (symmetric weights), found values "
                f"up to {largest:g}; quantise the float checkpoint symmetrically"
            )

    module.register_parameter(name, empty_parameter((1,), torch.float32, weight_loader=load))


def empty_parameter(shape: tuple[int, ...], dtype: torch.dtype, **attributes) -> Parameter:
    """A parameter for SGLang's weight loaders to fill; a scale is NaN until it is loaded."""
    data = (
        torch.full(shape, torch.nan) if dtype.is_floating_point else torch.empty(shape, dtype=dtype)
    )
    parameter = Parameter(data.to(dtype), requires_grad=False)
    set_weight_attrs(parameter, attributes)
    return parameter


class CheckpointLayer:
    """Part of a layer's method: what it knows of the checkpoint."""

    def __init__(self, layer: str, with_offset: bool) -> None:
        """layer: the name, for errors. with_offset: the checkpoint has ``weight_offset``."""
        self._layer = layer
        self._with_offset = with_offset


class Int8LinearMethod(CheckpointLayer, LinearMethodBase):
    """``weight`` [in, out] int8 and ``weight_scale`` [out] float32 once loaded."""

    def create_weights(
        self,
        layer: torch.nn.Module,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        **extra_weight_attrs,
    ) -> None:
        """Parameters as the checkpoint has them: weight [out, in], weight_scale [out, 1].

        Raises:
            ConfigError: a layer that the operators do not take.
        """
        shape = (sum(output_partition_sizes), input_size_per_partition)
        weight = empty_parameter(shape, torch.int8, input_dim=1, output_dim=0)
        reason = why_not(shape, weight.device.type)
        if reason:
            raise ConfigError(f"layer {self._layer} cannot take ascend_w8a8: {reason}")
        scale = empty_parameter((shape[0], 1), torch.float32, output_dim=0)
        layer.register_parameter("weight", weight)
        layer.register_parameter("weight_scale", scale)
        own = extra_weight_attrs.pop("weight_loader")

        def load(param: Parameter, loaded: torch.Tensor, *args, **kwargs) -> None:
            if loaded.is_floating_point():
                loaded, loaded_scale = quantise_weight(loaded.to(param.device))
                own(scale, loaded_scale, *args, **kwargs)
            own(param, loaded, *args, **kwargs)

        set_weight_attrs(weight, {"weight_loader": load, **extra_weight_attrs})
        set_weight_attrs(scale, {"weight_loader": own})
        if self._with_offset:
            add_offset(layer, "weight_offset", self._layer)

    def restore_weights_before_loading(self, layer: torch.nn.Module) -> None:
        """Back to the parameters of ``create_weights``: a running server gets new weights."""
        rows_in, rows_out = layer.weight.shape
        layer.weight.data = layer.weight.new_empty(rows_out, rows_in)
        layer.weight_scale.data = layer.weight_scale.new_full((rows_out, 1), torch.nan)
        if self._with_offset:
            add_offset(layer, "weight_offset", self._layer)

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        missing = int(layer.weight_scale.isnan().sum())
        if missing:
            raise ConfigError(
                f"weight_scale in layer {self._layer}: {missing} of {layer.weight_scale.numel()} "
                "channels were not in the checkpoint; download it again"
            )
        if self._with_offset:
            del layer.weight_offset
        layer.weight.data = layer.weight.data.t()
        layer.weight_scale.data = layer.weight_scale.data.flatten()
        layer.weight = prepare_weight(layer.weight)

    def apply(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """x [..., in] -> [..., out] in the dtype of x."""
        rows = x.reshape(-1, x.shape[-1])
        q, scale = dynamic_quant(rows)
        y = quant_matmul(q, scale, layer.weight, layer.weight_scale, x.dtype)
        if bias is not None:
            y = y + bias
        return y.view(*x.shape[:-1], y.shape[-1])


class DequantisedLinearMethod(CheckpointLayer, UnquantizedLinearMethod):
    """A layer that computes in float and is stored in INT8: ``kv_b_proj`` of MLA."""

    def create_weights(self, layer: torch.nn.Module, *args, **extra_weight_attrs) -> None:
        super().create_weights(layer, *args, **extra_weight_attrs)
        self._own = extra_weight_attrs["weight_loader"]
        self.restore_weights_before_loading(layer)

    def restore_weights_before_loading(self, layer: torch.nn.Module) -> None:
        """Wait for a weight in INT8 and its scale."""
        lock, parts = threading.Lock(), {}

        def take(part: str):
            # SGLang loads tensors in several threads and in the order of the file.
            def load(param: Parameter, loaded: torch.Tensor) -> None:
                with lock:
                    parts[part] = loaded
                    if len(parts) == 2:
                        self._own(layer.weight, dequantise_weight(parts["weight"], parts["scale"]))
                        parts.clear()
                        # What stays would make SGLang scale the folded weights once more.
                        del layer.weight_scale

            return load

        layer.weight.weight_loader = take("weight")
        scale = empty_parameter((1,), torch.float32, weight_loader=take("scale"))
        layer.register_parameter("weight_scale", scale)
        if self._with_offset:
            add_offset(layer, "weight_offset", self._layer)

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        super().process_weights_after_loading(layer)
        if hasattr(layer, "weight_scale"):
            raise ConfigError(
                f"weight or weight_scale of layer {self._layer} was not in the checkpoint; "
                "download it again"
            )
        if self._with_offset:
            del layer.weight_offset
