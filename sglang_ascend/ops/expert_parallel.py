"""What the collective operators of expert parallelism share: group, experts, state.

A collective operator takes its ranks as an argument, `ep.group`. The reference exchanges rows with
`EpGroup.all_to_all_rows`; the NPU call passes `EpGroup.hccl_name`, the name of the HCCL
communicator, which no other operator may use. `Operator` needs to know nothing of it: the first
tensor still chooses the device, and `SPEC` describes the tensors of one rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch

from sglang_ascend.ops.ep_limits import DispatchCall, violations
from sglang_ascend.ops.spec import HALVES, OperatorError
from sglang_ascend.ops.windows import Windows

# Rows that take at most this many bytes to a peer are sent padded to their bound, counts in front,
# in one exchange; more are sent exactly, behind an exchange of the counts. Measured over gloo on
# loopback: an empty exchange takes 71 us between two ranks and 304 us between four, and 32 KiB a
# peer add 6 us and 166 us to it. On a slow link 0 may be better: padding costs more than latency.
EAGER_BYTES = 32 * 1024


class EpGroup(Protocol):
    """Ranks that exchange rows; `comm.transport.RankGroup` is one."""

    rank: int
    size: int

    @property
    def hccl_name(self) -> str: ...

    def all_to_all_rows(
        self,
        x: torch.Tensor,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        where: Any,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor: ...


@dataclass(frozen=True)
class ExpertParallel:
    """What dispatch and combine of one layer must agree on, the same on all ranks.

    Attributes:
        group: the ranks. On the NPU a communicator for these two operators only.
        slots: routed expert slots, consecutive on the ranks behind the shared ones.
        shared_ranks: the first ranks, each with a copy of the shared expert. Rank r sends all of
            its tokens to shared rank r mod shared_ranks.
        product: "A2" or "A3"; the NPU calls differ. Not used on the reference device.
        algorithm: "fullmesh" or "hierarchy" on A2, "" on A3.
        eager_bytes: see EAGER_BYTES; 0 sends exact rows always.
        windows: receive buffers of the reference.
    """

    group: EpGroup
    slots: int
    shared_ranks: int = 0
    product: str = ""
    algorithm: str = ""
    eager_bytes: int = EAGER_BYTES
    windows: Windows = field(default_factory=Windows, compare=False, repr=False)

    @property
    def slots_per_rank(self) -> int:
        return self.slots // (self.group.size - self.shared_ranks)

    @property
    def is_shared(self) -> bool:
        return self.group.rank < self.shared_ranks

    @property
    def local_slots(self) -> int:
        """Experts of this rank, the shared one counted as one."""
        return 1 if self.is_shared else self.slots_per_rank

    def rows_bound(self, source: int, target: int, tokens: int, top_k: int) -> int:
        """Most rows that `source` with that many tokens can send to `target`."""
        if target >= self.shared_ranks:
            return tokens * min(top_k, self.slots_per_rank)
        return tokens if source % self.shared_ranks == target else 0

    def capacity(self, token_counts: Sequence[int], top_k: int) -> int:
        """Rows of dispatch's result: room for the most that can arrive, as the NPU allocates it.

        Source: shapes of npu_moe_distribute_dispatch_v2 (A in its documentation).
        """
        longest = max(token_counts)
        if self.is_shared:
            return longest * -(-self.group.size // self.shared_ranks)
        return longest * self.group.size * min(top_k, self.slots_per_rank)


class ReferenceState(NamedTuple):
    """What the reference's combine needs of its dispatch.

    row_index [tokens * top_k] int32: place of each pair among the rows that this rank sent to
    routed experts, -1 if it sent none. order [received] int64: place of each row of dispatch's
    result among the received ones by source. send_counts, recv_counts: rows by rank.
    """

    row_index: torch.Tensor
    order: torch.Tensor
    send_counts: list[int]
    recv_counts: list[int]


class NpuState(NamedTuple):
    """What the NPU's combine needs of its dispatch. Contents differ by product and version."""

    ids: torch.Tensor
    weights: torch.Tensor
    active: torch.Tensor | None
    assist_info: torch.Tensor
    ep_counts: torch.Tensor
    tp_counts: torch.Tensor
    expand_scales: torch.Tensor | None


def check_slots(name: str, arguments) -> None:
    """Raise `OperatorError` unless the ids are slots or -1 and the token counts fit."""
    ids, ep, counts = arguments["ids"], arguments["ep"], arguments["token_counts"]
    if ids.numel() and not -1 <= int(ids.min()) <= int(ids.max()) < ep.slots:
        raise OperatorError(
            f"{name}: ids must be in -1..{ep.slots - 1}, got {int(ids.min())}..{int(ids.max())}"
        )
    check_token_counts(name, len(ids), ep, counts)


def check_token_counts(name: str, tokens: int, ep: ExpertParallel, counts: Sequence[int]) -> None:
    """Raise `OperatorError` unless there is a count for every rank, and this rank's is right."""
    rank = ep.group.rank
    if not 0 <= rank < ep.group.size:
        raise OperatorError(f"{name}: rank is {rank}, allowed is 0..{ep.group.size - 1}")
    if len(counts) != ep.group.size or counts[rank] != tokens:
        raise OperatorError(
            f"{name}: token_counts must be {ep.group.size} numbers with {tokens} tokens for rank"
            f" {rank}, got {list(counts)}"
        )


def check_npu_call(name: str, x: torch.Tensor, ids: torch.Tensor, ep: ExpertParallel, counts):
    """Raise `OperatorError` for what the NPU operators do not take; their own checks miss some."""
    check_token_counts(name, len(ids), ep, counts)
    call = DispatchCall(
        product=ep.product,
        algorithm=ep.algorithm,
        world_size=ep.group.size,
        tokens=max(counts),
        hidden=x.shape[1],
        top_k=ids.shape[1],
        slots=ep.slots,
        shared_ranks=ep.shared_ranks,
        rank=ep.group.rank,
    )
    found = violations(call)
    if x.dtype not in HALVES:
        found += (f"dtype is {x.dtype}, allowed is bfloat16 or float16",)
    if found:
        raise OperatorError(f"{name} on npu: {'; '.join(found)}")


def npu_tokens(
    x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, ep: ExpertParallel, longest: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """(x, ids, weights, mask) as the NPU operators take them: at least one token, no id of -1.

    Where they have a mask, every rank sends as many tokens as the longest, since a mask is allowed
    only then; it says which pairs (A3) or whole tokens (A2, full mesh) take part. Where they have
    none (A2, hierarchy), ranks send what they have, and an empty rank a token of zeros with
    weights of zero, whose result nobody reads.
    """
    if ep.algorithm == "hierarchy":
        if len(x):
            return x, ids, weights, None
        spread = torch.arange(ids.shape[1], dtype=ids.dtype, device=ids.device)
        return padded(x, 1), spread.unsqueeze(0), padded(weights, 1), None
    x, ids, weights = padded(x, longest), padded(ids, longest, -1), padded(weights, longest)
    chosen = ids >= 0
    mask = chosen if ep.product == "A3" else chosen[:, 0]
    return x, ids.clamp_min(0), weights.masked_fill(~chosen, 0.0), mask


def padded(x: torch.Tensor, length: int, value: int = 0) -> torch.Tensor:
    """x [n, ...] with rows of `value` behind it, up to `length` rows."""
    if len(x) == length:
        return x
    out = x.new_full((length, *x.shape[1:]), value)
    out[: len(x)] = x
    return out
