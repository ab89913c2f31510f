"""Dispatch/Combine: each token goes to the ranks of its experts, and their outputs come back."""

from __future__ import annotations

from sglang_ascend.moe.dispatch.base import ExpertDispatch
from sglang_ascend.moe.dispatch.quantized_payload import dequantize
from sglang_ascend.moe.dispatch.rows import used_rows
from sglang_ascend.ops.expert_parallel import EAGER_BYTES, ExpertParallel
from sglang_ascend.ops.moe_distribute_combine import moe_distribute_combine
from sglang_ascend.ops.moe_distribute_dispatch import moe_distribute_dispatch


class DispatchCombine(ExpertDispatch):
    """One message to each rank and one back; bytes grow with top_k and with skewed routing.

    On the NPU the group's communicator must serve nothing else, and one object must serve all
    layers: its two windows are those of the communicator.
    """

    def __init__(
        self,
        group,
        placement,
        quantized=False,
        product: str = "",
        algorithm: str = "",
        eager_bytes: int = EAGER_BYTES,
    ):
        """product, algorithm: "A2" with "fullmesh" or "hierarchy", "A3" with ""; for the NPU only.

        eager_bytes: see `ops.expert_parallel.EAGER_BYTES`; for the reference only.
        """
        super().__init__(group, placement, quantized)
        self._ep = ExpertParallel(
            group,
            placement.slots,
            placement.shared_ranks,
            product=product,
            algorithm=algorithm,
            eager_bytes=eager_bytes,
        )

    def run(self, hidden, ids, weights, token_counts, experts, where, shared=None):
        self.check(hidden, token_counts, shared)
        if not any(token_counts):
            return hidden
        rows, scales, tokens_per_expert, state = moe_distribute_dispatch(
            hidden,
            ids,
            weights,
            self._ep,
            token_counts,
            self.quantized,
            where.at("dispatch"),
        )
        rows = used_rows(rows, tokens_per_expert)
        if scales is not None:
            rows = dequantize(rows, scales[: len(rows)], hidden.dtype)
        out = shared(rows) if self._ep.is_shared else experts(rows, tokens_per_expert)
        return moe_distribute_combine(
            out,
            ids,
            weights,
            state,
            self._ep,
            token_counts,
            where.at("combine"),
        )
