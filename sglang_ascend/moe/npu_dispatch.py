"""Dispatch/Combine on an NPU: its product, its communicator, and the tokens that fit."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import torch.distributed as dist

from sglang_ascend.errors import ConfigError
from sglang_ascend.moe.dispatch.limits import check_dispatch_config
from sglang_ascend.ops.ep_limits import DEFAULT_BUFFER_MIB, DispatchCall, violations

#: Constants of `configs/hardware` by product line.
HARDWARE = {"A2": "a2_910b_376t", "A3": "a3_910c"}
_BUFFER_ENV = "HCCL_BUFFSIZE"
_MOST_TOKENS = 512


@dataclass(frozen=True)
class NpuDispatch:
    """What the NPU's operators need to know besides the tokens.

    Attributes:
        product: "A2" (910B) or "A3" (910C).
        algorithm: "fullmesh" or "hierarchy" on A2, "" on A3.
        capacity: most tokens of a rank in one step; 0 where the operators cannot be used.
    """

    product: str
    algorithm: str
    capacity: int


def product_of(soc: str) -> str:
    """Product line of a chip by torch_npu's name of it, such as Ascend910B3 or Ascend910_9392."""
    if soc.startswith("Ascend910B"):
        return "A2"
    if soc.startswith("Ascend910_93"):
        return "A3"
    raise ConfigError(
        f"chip {soc!r} is unknown to Dispatch/Combine; known are Ascend910B (A2) and Ascend910_93 "
        "(A3): start with --ep-dispatch allgather"
    )


def configure(
    soc: str, nodes: int, call: DispatchCall, forced: bool, longest_step: int
) -> NpuDispatch:
    """Fit the operators to a deployment.

    Args:
        soc: torch_npu's name of the chip.
        nodes: machines of the group.
        call: world size, sizes and slots of the layers; product, algorithm and tokens are set here.
        forced: whether every step has to go through Dispatch/Combine.
        longest_step: most tokens that a rank can have in one step.

    Raises:
        ConfigError: forced, and the operators do not take it; says which limits are broken.
    """
    product = product_of(soc)
    algorithm = "" if product == "A3" else "hierarchy" if nodes > 1 else "fullmesh"
    call = replace(call, product=product, algorithm=algorithm)
    buffer_mib = buffer_size_mib()
    if forced:
        check_dispatch_config(replace(call, tokens=longest_step), buffer_mib)
    return NpuDispatch(product, algorithm, capacity(call, buffer_mib))


def capacity(call: DispatchCall, buffer_mib: int) -> int:
    """Most tokens a rank that the operators accept; 0 where they accept none."""
    for tokens in range(_MOST_TOKENS, 0, -1):
        if not violations(replace(call, tokens=tokens), buffer_mib):
            return tokens
    return 0


def buffer_size_mib(environ=os.environ) -> int:
    """Size of a communicator's buffer in MiB, as HCCL reads it."""
    text = environ.get(_BUFFER_ENV)
    if text is None:
        return DEFAULT_BUFFER_MIB
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(
            f"{_BUFFER_ENV} {text!r} is no number of MiB; give 1 or more, or unset it"
        )
    return int(text)


def own_communicator(process_group: dist.ProcessGroup) -> dist.ProcessGroup:
    """A second group of the same ranks: the operators' windows must serve nothing else."""
    ranks = dist.get_process_group_ranks(process_group)
    return dist.new_group(ranks, backend="hccl", use_local_synchronization=True)
