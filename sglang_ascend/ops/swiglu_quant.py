"""SwiGLU of the rows of experts that ends in INT8, for the quantised down projection."""

import torch

from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3, TINY_DEEPSEEK, MlaModel
from sglang_ascend.ops.dynamic_quant import reference as quantise
from sglang_ascend.ops.quant_grouped_matmul import check_counts
from sglang_ascend.ops.spec import (
    FLOATS,
    HALVES,
    ContractCase,
    NpuLimit,
    Operator,
    OperatorError,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)
from sglang_ascend.ops.swiglu import reference as activate

SPEC = OperatorSpec(
    name="swiglu_quant",
    summary="q, scale = dynamic_quant(silu(first half) * second half), with the product unrounded.",
    source="arXiv 2002.05202; torch_npu npu_swiglu, npu_dynamic_quant",
    inputs={
        "x": TensorSpec(("rows", "2*inter"), FLOATS),
        "tokens_per_expert": TensorSpec(("experts",), (torch.int64,)),
    },
    outputs={
        "q": TensorSpec(("rows", "inter"), (torch.int8,)),
        "scale": TensorSpec(("rows",), (torch.float32,)),
    },
    npu_operators=("npu::npu_swiglu", "npu::npu_dynamic_quant"),
    npu_limits={"dtype": NpuLimit("aclnnDynamicQuant", allowed=HALVES)},
    tolerance=Tolerance(
        "a quotient near a half may round to either side; the NPU rounds the product to the dtype"
        " of x before it quantises",
        float32=2**-8,
    ),
    values=lambda arguments: check_arguments(arguments["x"], arguments["tokens_per_expert"]),
)


def check_arguments(x: torch.Tensor, tokens_per_expert: torch.Tensor) -> None:
    if x.shape[1] % 2:
        raise OperatorError(f"{SPEC.name}: x axis 1 must be even (gate and up), got {x.shape[1]}")
    check_counts(SPEC.name, tokens_per_expert, x.shape[0])


def reference(
    x: torch.Tensor, tokens_per_expert: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """x [rows, 2*inter] sorted by expert, tokens_per_expert [experts] int64 -> (q, scale).

    q [rows, inter] int8 and scale [rows] float32 as in `dynamic_quant`. Rows behind the sum of
    tokens_per_expert are neither read nor meaningful in the results.
    """
    q = x.new_zeros(x.shape[0], x.shape[1] // 2, dtype=torch.int8)
    scale = x.new_zeros(x.shape[0], dtype=torch.float32)
    used = int(tokens_per_expert.sum())
    q[:used], scale[:used] = quantise(activate(x[:used].float()))
    return q, scale


def npu(x: torch.Tensor, tokens_per_expert: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two operators: the documents of the fused npu_swiglu_quant disagree between versions of CANN
    on whether it returns max / 127 or 127 / max.
    """
    check_npu_limits(x.dtype)
    return torch.ops.npu.npu_dynamic_quant(torch.ops.npu.npu_swiglu(x, dim=-1))


def check_npu_limits(dtype: torch.dtype) -> None:
    SPEC.require_npu("dtype", dtype)


def _case(label: str, model: MlaModel, rows: int, experts: int) -> ContractCase:
    def build(device, dtype):
        return {
            "x": torch.empty(rows, 2 * model.inter, dtype=dtype, device=device),
            "tokens_per_expert": torch.zeros(experts, dtype=torch.int64, device=device),
        }

    return ContractCase(label, build)


CONTRACT = (
    _case("tiny-deepseek-v3 decode", TINY_DEEPSEEK, 32, 16),
    _case("DeepSeek-V3 prefill, EP 32", DEEPSEEK_V3, 4096, 8),
)

swiglu_quant = Operator(SPEC, reference, npu, CONTRACT)
