"""Layers of experts spread over ranks, and what a single rank would compute."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sglang_ascend.comm.transport import RankGroup, Where
from sglang_ascend.moe.dispatch.allgather_reducescatter import AllGatherReduceScatter
from sglang_ascend.moe.dispatch.base import ExpertDispatch
from sglang_ascend.moe.dispatch.dispatch_combine import DispatchCombine
from sglang_ascend.moe.dispatch.placement import ExpertPlacement
from sglang_ascend.ops.dynamic_quant import dynamic_quant

WIDTH = 16


def _balanced(tokens, top_k, slots):
    return torch.rand(tokens, slots).topk(top_k).indices


def _one_expert(tokens, top_k, slots):
    """The last slot is all that anybody chooses."""
    ids = torch.full((tokens, top_k), -1)
    ids[:, top_k // 2] = slots - 1
    return ids


def _with_gaps(tokens, top_k, slots):
    ids = _balanced(tokens, top_k, slots)
    return ids.masked_fill(torch.rand(tokens, top_k) < 0.4, -1)


def _skewed(tokens, top_k, slots):
    """Every token chooses the first slots first."""
    return (torch.rand(tokens, slots) + torch.linspace(2, 0, slots)).topk(top_k).indices


# Slots of each token, distinct but for -1, by (tokens, top_k, slots).
ROUTINGS = {
    "balanced": _balanced,
    "one expert": _one_expert,
    "with gaps": _with_gaps,
    "none": lambda tokens, top_k, slots: torch.full((tokens, top_k), -1),
    "skewed": _skewed,
}


@dataclass(frozen=True)
class Layer:
    """One call of a transport on all ranks: the same arguments make the same tensors everywhere."""

    counts: tuple[int, ...]
    routing: str = "balanced"
    top_k: int = 3
    slots: int = 12
    shared_ranks: int = 0
    dtype: torch.dtype = torch.float32
    seed: int = 0

    def tensors(self):
        """hidden, ids, weights of all tokens, experts [slots + 1, WIDTH, WIDTH]; last is shared."""
        torch.manual_seed(self.seed)
        tokens = sum(self.counts)
        hidden = torch.randn(tokens, WIDTH).to(self.dtype)
        ids = ROUTINGS[self.routing](tokens, self.top_k, self.slots).int()
        # A weight of an id of -1 must not be read.
        weights = torch.rand(tokens, self.top_k).masked_fill(ids < 0, float("nan"))
        experts = torch.randn(self.slots + 1, WIDTH, WIDTH) / WIDTH**0.5
        return hidden, ids, weights, experts.to(self.dtype)

    def expected(self, quantized: bool = False) -> torch.Tensor:
        """The layer in float64 on one rank [tokens, WIDTH]."""
        hidden, ids, weights, experts = self.tensors()
        hidden = hidden.double()
        if quantized:
            q, scale = dynamic_quant(hidden.float())
            hidden = (q.double() * scale.double().unsqueeze(1)).to(self.dtype).double()
        out = torch.zeros(len(hidden), WIDTH, dtype=torch.float64)
        for choice in range(self.top_k):
            chosen = ids[:, choice].long()
            taken = torch.einsum("th,tho->to", hidden, experts.double()[chosen.clamp_min(0)])
            weight = weights[:, choice].double().unsqueeze(1)
            out += torch.where(chosen.unsqueeze(1) < 0, 0.0, weight * taken)
        return out + hidden @ experts[-1].double() if self.shared_ranks else out


class LocalExperts:
    """The experts of one rank; rows behind the last token come out as NaN."""

    def __init__(self, experts: torch.Tensor, start: int):
        self._experts, self._start = experts, start

    def __call__(self, rows, tokens_per_expert):
        out = torch.full_like(rows, float("nan"))
        end = 0
        for slot, count in enumerate(tokens_per_expert.tolist()):
            begin, end = end, end + count
            out[begin:end] = rows[begin:end] @ self._experts[self._start + slot]
        assert end <= len(rows)
        return out


def transports(group: RankGroup, layer: Layer, quantized: bool = False) -> list[ExpertDispatch]:
    """Both transports, Dispatch/Combine with exact and with padded messages."""
    placement = ExpertPlacement(group.size, layer.slots, layer.shared_ranks)
    return [
        AllGatherReduceScatter(group, placement, quantized),
        DispatchCombine(group, placement, quantized, eager_bytes=0),
        DispatchCombine(group, placement, quantized, eager_bytes=1 << 30),
    ]


def run(transport: ExpertDispatch, layer: Layer, step: int = 0) -> tuple[torch.Tensor, slice]:
    """This rank's result, and which of all tokens are its own."""
    group, placement = transport.group, transport.placement
    start = sum(layer.counts[: group.rank])
    mine = slice(start, start + layer.counts[group.rank])
    hidden, ids, weights, experts = layer.tensors()
    out = transport.run(
        hidden[mine],
        ids[mine],
        weights[mine],
        layer.counts,
        LocalExperts(experts, placement.slot_range(group.rank)[0]),
        Where(step, 0, "moe"),
        (lambda rows: rows @ experts[-1]) if layer.shared_ranks else None,
    )
    return out, mine


def check(group: RankGroup, layer: Layer, quantized: bool = False) -> None:
    """Every transport computes the layer."""
    # Float32 sums in another order; a 16-bit expert output and result are rounded once each.
    tolerance = 2e-5 if layer.dtype == torch.float32 else 2**-6
    expected = layer.expected(quantized)
    for transport in transports(group, layer, quantized):
        out, mine = run(transport, layer)
        assert out.dtype == layer.dtype
        torch.testing.assert_close(out.double(), expected[mine], rtol=tolerance, atol=tolerance)
