"""Steps of one rank of the deployments that this package is made for.

Sources: the published deployments of an Atlas 800I A2 cluster (decode on 32 cards with 64 to 81
tokens a card, AllGather/ReduceScatter; prefill of 8 x 2K tokens on 16 cards) and of CloudMatrix 384
(decode with EP 320 and a batch of 96, Dispatch/Combine; arXiv 2506.12708).
"""

from __future__ import annotations

from dataclasses import dataclass

from sglang_ascend.ops.contract_group import StandInGroup
from sglang_ascend.ops.contract_shapes import DEEPSEEK_V3 as MODEL
from sglang_ascend.ops.expert_parallel import ExpertParallel


@dataclass(frozen=True)
class Step:
    """One step of one rank.

    query_lens, kv_lens: of its requests. heads: attention heads of the rank. rows: tokens that
    norms, gate and shared expert see on it. gathered: tokens that reach its expert layer.
    experts: its routed experts, the last ones of the model. ep: its group for Dispatch/Combine.
    samples: whether sampling is checked for this step.
    """

    label: str
    query_lens: tuple[int, ...]
    kv_lens: tuple[int, ...]
    heads: int
    rows: int
    gathered: int
    experts: int
    ep: ExpertParallel | None = None
    samples: bool = False

    @property
    def tokens(self) -> int:
        return sum(self.query_lens)

    @property
    def expert_rows(self) -> dict[str, int]:
        """Rows that the rank's experts get, by transport."""
        rows = {"AllGather": self.gathered * MODEL.top_k}
        if self.ep is not None:
            counts = (self.tokens,) * self.ep.group.size
            rows["Dispatch"] = self.ep.capacity(counts, MODEL.top_k)
        return rows

    @property
    def is_prefill(self) -> bool:
        return max(self.query_lens) > 16


def _a2_decode(requests: int, query_len: int) -> Step:
    tokens = requests * query_len
    return Step(
        label=f"DeepSeek-V3, A2 decode EP 32, {requests} requests x {query_len}",
        query_lens=(query_len,) * requests,
        kv_lens=(3072,) * requests,
        heads=MODEL.heads,
        rows=tokens,
        gathered=32 * tokens,
        experts=MODEL.experts // 32,
        ep=ExpertParallel(StandInGroup(31, 32), MODEL.experts, 0, "A2", "fullmesh"),
    )


def _cloudmatrix_decode(requests: int, query_len: int) -> Step:
    tokens = requests * query_len
    # 32 ranks hold the shared expert, 288 one routed expert slot each (256 and 32 redundant).
    ep = ExpertParallel(StandInGroup(319, 320), 288, 32, "A3", "")
    return Step(
        label=f"DeepSeek-V3, CloudMatrix decode EP 320, {requests} requests x {query_len}",
        query_lens=(query_len,) * requests,
        kv_lens=(4096,) * requests,
        heads=MODEL.heads,
        rows=tokens,
        gathered=tokens,
        experts=1,
        ep=ep,
        samples=requests == 96,
    )


STEPS = (
    _a2_decode(64, 1),
    _a2_decode(81, 1),
    _a2_decode(40, 2),
    Step(
        label="DeepSeek-V3, A2 prefill on 16 cards, 8 x 2K",
        query_lens=(2048,) * 8,
        kv_lens=(2048,) * 8,
        heads=MODEL.heads // 16,
        rows=8 * 2048 // 16,
        gathered=8 * 2048,
        experts=MODEL.experts // 16,
    ),
    _cloudmatrix_decode(96, 1),
    _cloudmatrix_decode(48, 2),
)
