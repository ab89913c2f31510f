"""torch_npu's operators of quantised paths as their documentation describes them, in plain torch.

This stands for the documentation, as `npu_semantics.py` does. Schemas are those of torch_npu
2.13.0, less the options that no call passes.
"""

from __future__ import annotations

import torch

from tests.ops import npu_semantics

_SHARED = ("npu_rms_norm", "npu_swiglu", "npu_moe_init_routing_v2")
SCHEMAS = (
    "npu_dynamic_quant(Tensor input) -> (Tensor, Tensor)",
    "npu_add_rms_norm_dynamic_quant(Tensor x1, Tensor x2, Tensor gamma, *, float epsilon=1e-06,"
    " bool[2]? output_mask=None) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    "npu_quant_matmul(Tensor x1, Tensor x2, Tensor scale, *, Tensor? pertoken_scale=None,"
    " ScalarType? output_dtype=None) -> Tensor",
    "npu_grouped_matmul(Tensor[] x, Tensor[] weight, *, Tensor[]? scale=None,"
    " Tensor[]? per_token_scale=None, Tensor? group_list=None, int? split_item=0,"
    " int? group_type=None, int? group_list_type=0, ScalarType? output_dtype=None) -> Tensor[]",
)


def define(library: torch.library.Library) -> None:
    """Define the operators in the library `npu`, implemented for the CPU."""
    shared = [s for s in npu_semantics.SCHEMAS if s.split("(")[0] in _SHARED]
    for schema in (*SCHEMAS, *shared):
        library.define(schema)
        name = schema.split("(")[0]
        home = npu_semantics if name in _SHARED else globals()
        form = getattr(home, name) if name in _SHARED else home[name]
        library.impl(name, form, "CPU")


def _quantise(y):
    scale = y.abs().amax(-1) / 127
    # 0 / 0 is no number; as an integer the chip makes it 0.
    return (y / scale[:, None]).nan_to_num(0).round().to(torch.int8), scale


def npu_dynamic_quant(input):
    assert input.dtype in (torch.bfloat16, torch.float16)
    return _quantise(input.float())


def npu_add_rms_norm_dynamic_quant(x1, x2, gamma, *, epsilon=1e-6, output_mask=None):
    assert list(output_mask) == [True, False]
    total = x1.float() + x2.float()
    y = total / (total.pow(2).mean(-1, keepdim=True) + epsilon).sqrt() * gamma.float()
    q, scale = _quantise(y)
    return q, torch.empty(0, dtype=torch.int8), total.to(x1.dtype), scale, torch.empty(0)


def npu_quant_matmul(x1, x2, scale, *, pertoken_scale=None, output_dtype=None):
    assert (
        x1.dtype == x2.dtype == torch.int8 and pertoken_scale.dtype == scale.dtype == torch.float32
    )
    assert output_dtype in (torch.bfloat16, torch.float16)
    sums = x1.double() @ x2.double()
    return (sums * scale.double() * pertoken_scale.double()[:, None]).to(output_dtype)


def npu_grouped_matmul(
    x,
    weight,
    *,
    scale=None,
    per_token_scale=None,
    group_list=None,
    split_item=0,
    group_type=None,
    group_list_type=0,
    output_dtype=None,
):
    assert split_item == 3 and group_type == 0 and group_list_type == 1
    y = torch.full((x[0].shape[0], weight[0].shape[2]), float("nan"), dtype=output_dtype)
    start = 0
    for expert, count in enumerate(group_list.tolist()):
        rows = slice(start, start + count)
        y[rows] = npu_quant_matmul(
            x[0][rows],
            weight[0][expert],
            scale[0][expert],
            pertoken_scale=per_token_scale[0][rows],
            output_dtype=output_dtype,
        )
        start += count
    return [y]
