"""Draw one token per request from unnormalised weights."""

import torch

from sglang_ascend.ops.murmur_hash32 import reference as murmur_hash32
from sglang_ascend.ops.spec import (
    INTS,
    ContractCase,
    Operator,
    OperatorError,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)

SPEC = OperatorSpec(
    name="sample",
    summary="A token with probability proportional to its weight, reproducible if seeds are given.",
    source="inverse transform; Gumbel-max trick (arXiv 1411.0030) with bits from murmur_hash32",
    inputs={
        "weights": TensorSpec(("requests", "vocabulary"), (torch.float32,)),
        "seeds": TensorSpec(("requests",), (torch.int64,), optional=True),
        "positions": TensorSpec(("requests",), INTS, optional=True),
    },
    outputs={"tokens": TensorSpec(("requests",), (torch.int32,))},
    tolerance=Tolerance(
        "seeded: float64 logarithms of another library may swap tokens that tie within rounding;"
        " unseeded: the distribution is the same, the draws are not"
    ),
    values=lambda arguments: check_arguments(arguments),
)


def check_arguments(arguments) -> None:
    if (arguments["seeds"] is None) != (arguments["positions"] is None):
        raise OperatorError(f"{SPEC.name}: seeds and positions are given together or not at all")


def reference(
    weights: torch.Tensor,
    seeds: torch.Tensor | None = None,
    positions: torch.Tensor | None = None,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """weights [requests, vocabulary] float32, not negative, with one positive at least per row.

    Returns tokens int32 [requests]. With seeds and positions [requests], the token of a request is
    a function of its weights, its seed and its position alone, not of the batch; without, the noise
    comes from `generator` or torch's default one, and only its distribution is specified. A token
    of weight 0 is never drawn.
    """
    if seeds is None:
        mass = weights.cumsum(-1, dtype=torch.float64)
        total = mass[:, -1:]
        drawn = torch.rand(total.shape, dtype=torch.float64, generator=generator) * total
        # The product may round up to the total, behind the last token.
        drawn = drawn.minimum(total.nextafter(torch.zeros_like(total)))
        return torch.searchsorted(mass, drawn, right=True).squeeze(1).int()
    # Noise is needed only where some request has a weight; filters leave few such tokens.
    columns = (weights > 0).any(dim=0).nonzero().squeeze(1)
    if weights.shape[0] == 0:
        return columns.int()
    bits = murmur_hash32(seeds, positions, columns)
    best = (weights.index_select(1, columns).double().log() + _gumbel(bits)).argmax(-1)
    return columns.index_select(0, best).int()


def npu(weights, seeds=None, positions=None, generator=None):
    """Made of aten operators, which torch_npu has; no look at the values on the host."""
    if seeds is None:
        # The first of clocks with rates w rings with probability w / sum(w).
        clocks = torch.empty_like(weights).exponential_(generator=generator)
        return (weights / clocks.clamp_min_(torch.finfo(torch.float32).tiny)).argmax(-1).int()
    columns = torch.arange(weights.shape[1], device=weights.device)
    bits = murmur_hash32(seeds, positions, columns)
    return (weights.double().log() + _gumbel(bits)).argmax(-1).int()


def _gumbel(bits: torch.Tensor) -> torch.Tensor:
    """Standard Gumbel noise, float64, from 32 uniform bits; finite for every bit pattern."""
    uniform = bits.double() / 0xFFFFFFFF
    # 0 and 1 are hit by one pattern each; both ends are moved to a finite neighbour.
    log_uniform = uniform.log_().clamp_(torch.finfo(torch.float64).min, -(2.0**-32))
    return log_uniform.neg_().log_().neg_()


def _case(label: str, requests: int, vocabulary: int, seeded: bool) -> ContractCase:
    def build(device, dtype):
        numbers = torch.zeros(requests, dtype=torch.int64, device=device) if seeded else None
        weights = torch.ones(requests, vocabulary, dtype=torch.float32, device=device)
        return {"weights": weights, "seeds": numbers, "positions": numbers}

    return ContractCase(label, build, torch.float32)


CONTRACT = (
    _case("SmolLM2-135M", 4, 49152, False),
    _case("DeepSeek-V3 seeded", 64, 129280, True),
)

sample = Operator(SPEC, reference, npu, CONTRACT)
