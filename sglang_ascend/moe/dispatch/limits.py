"""Whether Dispatch/Combine can run on the NPU with what was configured: said before the start."""

from __future__ import annotations

from sglang_ascend.errors import ConfigError
from sglang_ascend.ops.ep_limits import DEFAULT_BUFFER_MIB, DispatchCall, violations


def check_dispatch_config(call: DispatchCall, buffer_mib: int = DEFAULT_BUFFER_MIB) -> None:
    """Raise ConfigError with every limit that the configuration breaks.

    call: tokens is the most that a rank will have in a step that may use Dispatch/Combine.
    buffer_mib: HCCL_BUFFSIZE in MiB.
    """
    found = violations(call, buffer_mib)
    if found:
        raise ConfigError(
            f"Dispatch/Combine on {call.product} cannot run: {'; '.join(found)}. Change these, or"
            " choose AllGather/ReduceScatter"
        )
