"""What the NPU's dispatch and combine do not take is refused before a start, with the numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sglang_ascend.errors import ConfigError
from sglang_ascend.moe.dispatch.limits import check_dispatch_config
from sglang_ascend.ops.ep_limits import MIB, DispatchCall, required_buffer_bytes, violations

A2 = DispatchCall("A2", "fullmesh", 32, 256, 7168, 8, 256)
HIERARCHY = DispatchCall("A2", "hierarchy", 32, 512, 7168, 8, 256)
A3 = DispatchCall("A3", "", 320, 96, 7168, 8, 288, shared_ranks=32)
REFUSED = [
    (A2, {"world_size": 24, "slots": 240}, "world_size is 24, allowed is one of 2, 3, 4"),
    (A2, {"world_size": 4, "slots": 2048}, "slots is 2048, allowed is 1..1024"),
    (A2, {"world_size": 8}, "slots_per_rank is 32, allowed is 1..24"),
    (A2, {"tokens": 257}, "tokens is 257, allowed is 1..256"),
    (A2, {"tokens": 0}, "tokens is 0, allowed is 1..256"),
    (A2, {"shared_ranks": 16}, "shared_ranks is 16, allowed is one of 0"),
    (A2, {"hidden": 7200 + 16}, "hidden is 7216, allowed is 1..10240, a multiple of 32"),
    (A2, {"top_k": 17}, "top_k is 17, allowed is 1..16"),
    (A2, {"rank": 32}, "rank is 32, allowed is 0..31"),
    (A2, {"algorithm": ""}, "product and algorithm are 'A2' '', allowed is one of A2 'fullmesh'"),
    (A2, {"slots": 250}, "250 slots do not divide over 32 ranks"),
    (HIERARCHY, {"world_size": 8}, "world_size is 8, allowed is one of 16, 32, 64"),
    (HIERARCHY, {"slots": 544}, "slots is 544, allowed is 1..512"),
    (HIERARCHY, {"tokens": 513}, "tokens is 513, allowed is 1..512"),
    (A3, {"world_size": 1000, "slots": 968}, "world_size is 1000, allowed is 2..768"),
    (A3, {"slots": 1152}, "slots is 1152, allowed is 1..1024"),
    (A3, {"world_size": 704, "slots": 672 * 3}, "slots_per_rank * world_size is 2112"),
    (A3, {"tokens": 513}, "tokens is 513, allowed is 1..512"),
    (A3, {"hidden": 512}, "hidden is 512, allowed is 1024..8192"),
    (A3, {"shared_ranks": 320}, "288 slots do not divide over 0 ranks"),
    (DispatchCall("A3", "", 2, 1, 1024, 8, 4), {}, "top_k is 8, allowed is at most slots 4"),
]


@pytest.mark.parametrize(("good", "changes", "message"), REFUSED)
def test_limits(good, changes, message):
    if changes:
        assert violations(good) == ()
    found = violations(replace(good, **changes))
    assert any(line.startswith(message) for line in found), found


def test_buffer_size():
    """The published formulas, with their numbers written out."""
    assert required_buffer_bytes(A2) == (256 * 32 * 8 * 7168 * 2 + 2 * MIB) * 2
    assert required_buffer_bytes(HIERARCHY) == (256 + 8) * 512 * (7168 * 2 + 128) + 8 * MIB
    arriving, returning = 1 * 96 * 320 * 14848, (8 + 1) * 96 * 14336
    assert required_buffer_bytes(A3) == 2 * (arriving + returning)


def test_a_small_buffer_is_refused_with_what_is_needed():
    needed = -(-required_buffer_bytes(A3) // MIB)
    check_dispatch_config(A3, needed)
    with pytest.raises(ConfigError) as error:
        check_dispatch_config(A3, needed - 1)
    assert str(error.value) == (
        f"Dispatch/Combine on A3 cannot run: HCCL_BUFFSIZE is {needed - 1} MiB, needed are {needed}"
        f" MiB for 96 tokens a rank; set HCCL_BUFFSIZE={needed} or admit fewer tokens. Change"
        " these, or choose AllGather/ReduceScatter"
    )


def test_all_broken_limits_are_named_at_once():
    with pytest.raises(ConfigError, match="tokens is 999.*top_k is 17"):
        check_dispatch_config(replace(A2, tokens=999, top_k=17))
