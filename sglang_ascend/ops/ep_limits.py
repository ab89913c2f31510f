"""Limits of the NPU's dispatch and combine operators, and the buffer that they need.

Pure: called with configured numbers before a start, and with those of a call before the call.

Sources: CANN ops-transformer, aclnnMoeDistributeDispatchV2 and aclnnMoeDistributeCombineV2, and
torch_npu's npu_moe_distribute_dispatch_v2. Where editions differ (older ones allow fewer world
sizes and a smaller hidden size), the newer one is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

MIB = 1024 * 1024
# Size of a communicator's buffer unless HCCL_BUFFSIZE says otherwise (same sources).
DEFAULT_BUFFER_MIB = 200

_DISPATCH = "aclnnMoeDistributeDispatchV2"


@dataclass(frozen=True)
class DispatchCall:
    """The numbers of a deployment or of one call that the limits are about.

    Attributes:
        product: "A2" (910B) or "A3" (910C; a rank is a die).
        algorithm: "fullmesh" or "hierarchy" on A2, "" on A3.
        tokens: tokens of the rank that has most of them.
        slots: routed expert slots over all ranks.
        shared_ranks: ranks of their own for the shared expert.
    """

    product: str
    algorithm: str
    world_size: int
    tokens: int
    hidden: int
    top_k: int
    slots: int
    shared_ranks: int = 0
    rank: int = 0

    @property
    def slots_per_rank(self) -> int:
        return self.slots // (self.world_size - self.shared_ranks)


@dataclass(frozen=True)
class Bound:
    """Accepted values of one quantity: the listed ones, or `low`..`high` in steps of `step`."""

    quantity: str
    source: str
    low: int = 1
    high: int = 0
    step: int = 1
    listed: tuple[int, ...] = ()

    def accepts(self, value: int) -> bool:
        if self.listed:
            return value in self.listed
        return self.low <= value <= self.high and value % self.step == 0

    def __str__(self) -> str:
        if self.listed:
            return "one of " + ", ".join(map(str, self.listed))
        multiple = f", a multiple of {self.step}" if self.step > 1 else ""
        return f"{self.low}..{self.high}{multiple}"


_NO_SHARED = Bound("shared_ranks", _DISPATCH + ": no shared experts on A2", listed=(0,))
_TOP_K = Bound("top_k", _DISPATCH, high=16)
_A2_HIDDEN = Bound("hidden", _DISPATCH, high=10240, step=32)

BOUNDS: dict[tuple[str, str], tuple[Bound, ...]] = {
    ("A2", "fullmesh"): (
        Bound(
            "world_size",
            _DISPATCH,
            listed=(2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128, 192, 256, 384),
        ),
        Bound("slots", _DISPATCH, high=1024),
        Bound(
            "slots_per_rank",
            "design notes of MoeDistributeDispatch: 24 counters in a rank's status row",
            high=24,
        ),
        Bound("tokens", _DISPATCH, high=256),
        _NO_SHARED,
        _A2_HIDDEN,
        _TOP_K,
    ),
    ("A2", "hierarchy"): (
        Bound("world_size", _DISPATCH, listed=(16, 32, 64)),
        Bound("slots", _DISPATCH, high=512),
        Bound("tokens", _DISPATCH + ", driver 25.0.RC1.1 or later", high=512),
        _NO_SHARED,
        _A2_HIDDEN,
        _TOP_K,
    ),
    ("A3", ""): (
        Bound("world_size", _DISPATCH, low=2, high=768),
        Bound("slots", _DISPATCH, high=1024),
        Bound("tokens", _DISPATCH, high=512),
        Bound("hidden", _DISPATCH, low=1024, high=8192),
        _TOP_K,
    ),
}
# A3: slots of a rank times ranks, or the operators' status area overflows.
_A3_STATUS = Bound("slots_per_rank * world_size", _DISPATCH, high=2048)


@lru_cache(maxsize=256)
def violations(call: DispatchCall, buffer_mib: int | None = None) -> tuple[str, ...]:
    """What the operators would not accept, one line each with the numbers; empty if nothing.

    buffer_mib: HCCL_BUFFSIZE, the size of the communicator's buffer in MiB; None leaves it out.
    """
    bounds = BOUNDS.get((call.product, call.algorithm))
    if bounds is None:
        known = ", ".join(f"{product} {name!r}" for product, name in BOUNDS)
        given = f"{call.product!r} {call.algorithm!r}"
        return (f"product and algorithm are {given}, allowed is one of {known}",)
    routed = call.world_size - call.shared_ranks
    if routed < 1 or call.slots % routed:
        return (
            f"{call.slots} slots do not divide over {routed} ranks"
            f" (world_size {call.world_size} less shared_ranks {call.shared_ranks})",
        )
    values = [(getattr(call, bound.quantity), bound) for bound in bounds]
    if call.product == "A3":
        values.append((call.slots_per_rank * call.world_size, _A3_STATUS))
    found = [
        f"{bound.quantity} is {value}, allowed is {bound} ({bound.source})"
        for value, bound in values
        if not bound.accepts(value)
    ]
    # torch_npu's shape inference looks at the rank; not every edition of the kernel does.
    if not 0 <= call.rank < call.world_size:
        found.append(f"rank is {call.rank}, allowed is 0..{call.world_size - 1}")
    if call.top_k > call.slots:
        found.append(f"top_k is {call.top_k}, allowed is at most slots {call.slots}")
    if not found and buffer_mib is not None:
        needed_mib = -(-required_buffer_bytes(call) // MIB)
        if buffer_mib < needed_mib:
            found.append(
                f"HCCL_BUFFSIZE is {buffer_mib} MiB, needed are {needed_mib} MiB for {call.tokens}"
                f" tokens a rank; set HCCL_BUFFSIZE={needed_mib} or admit fewer tokens"
            )
    return tuple(found)


def required_buffer_bytes(call: DispatchCall) -> int:
    """Bytes of the communicator's buffer, both halves of its double buffer (same sources).

    The reference has no such bound: it allocates its windows as it needs them.
    """
    row_bytes = 2 * call.hidden
    if (call.product, call.algorithm) == ("A2", "fullmesh"):
        rows = call.tokens * call.world_size * min(call.slots_per_rank, call.top_k)
        return 2 * (rows * row_bytes + 2 * MIB)
    if (call.product, call.algorithm) == ("A2", "hierarchy"):
        window = _round_up(call.tokens * (row_bytes + 16 * _round_up(call.top_k, 8)), 512)
        return (call.slots + call.world_size // 4) * window + 8 * MIB
    arriving = call.slots_per_rank * call.tokens * call.world_size
    returning = (call.top_k + min(call.shared_ranks, 1)) * call.tokens
    with_scale = _round_up(_round_up(row_bytes, 32) + 64, 512)
    return 2 * (arriving * with_scale + returning * _round_up(row_bytes, 512))


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
