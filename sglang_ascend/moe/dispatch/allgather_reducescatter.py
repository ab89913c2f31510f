"""AllGather/ReduceScatter: every rank sees all tokens and adds its experts' share of each.

One all-gather of hidden rows, slots and weights in one payload; the rank's own slots; one
reduce-scatter of the weighted partial sums. Bytes do not depend on the routing.
"""

from __future__ import annotations

import torch

from sglang_ascend.moe.dispatch.base import ExpertDispatch
from sglang_ascend.moe.dispatch.quantized_payload import dequantize, pack, pack_routed, unpack
from sglang_ascend.moe.dispatch.rows import used_rows
from sglang_ascend.ops.moe_permute import moe_permute
from sglang_ascend.ops.moe_unpermute import moe_unpermute


class AllGatherReduceScatter(ExpertDispatch):
    """Two collectives a layer. Partial sums travel in float32 on the reference device, in the
    dtype of the hidden states on the NPU, where half the bytes count for more."""

    def run(self, hidden, ids, weights, token_counts, experts, where, shared=None):
        self.check(hidden, token_counts, shared)
        if not any(token_counts):
            return hidden
        parts = pack_routed(hidden, ids, weights, self.quantized)
        gathered = self.group.all_gather_rows(pack(parts), token_counts, where.at("all_gather"))
        ids_all, weights_all, *scale, hidden_all = unpack(gathered, token_counts, parts)
        if self.quantized:
            hidden_all = dequantize(hidden_all, scale[0].squeeze(1), hidden.dtype)
        if self.placement.is_shared(self.group.rank):
            partial = self._shared_partial(hidden_all, token_counts, shared)
        else:
            partial = self._routed_partial(hidden_all, ids_all, weights_all, experts)
        out = self.group.reduce_scatter_rows(partial, token_counts, where.at("reduce_scatter"))
        return out.to(hidden.dtype)

    def _routed_partial(self, hidden, ids, weights, experts) -> torch.Tensor:
        start, end = self.placement.slot_range(self.group.rank)
        rows, row_index, tokens_per_expert = moe_permute(hidden, ids, start, end)
        out = experts(used_rows(rows, tokens_per_expert), tokens_per_expert)
        return moe_unpermute(out.to(_partial_dtype(hidden)), row_index, weights)

    def _shared_partial(self, hidden, token_counts, shared) -> torch.Tensor:
        """The shared expert's output for the tokens of the ranks that this one serves."""
        partial = torch.zeros_like(hidden, dtype=_partial_dtype(hidden))
        counts, rank = list(token_counts), self.group.rank
        served = [self.placement.shared_rank_of(source) == rank for source in range(len(counts))]
        rows = [part for part, mine in zip(hidden.split(counts), served) if mine]
        results = shared(torch.cat(rows)).split([len(part) for part in rows])
        for target, result in zip(
            (part for part, mine in zip(partial.split(counts), served) if mine), results
        ):
            target.copy_(result)
        return partial


def _partial_dtype(hidden: torch.Tensor) -> torch.dtype:
    return torch.float32 if hidden.device.type == "cpu" else hidden.dtype
