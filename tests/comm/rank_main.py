"""The process of one rank of a `RankPool`."""

from __future__ import annotations

import os
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

from sglang_ascend.comm.topology import Topology
from sglang_ascend.comm.transport import RankGroup


def serve(rank, size, worlds, timeout_s, store, pipe) -> None:
    """Run cases until the other end of the pipe closes."""
    os.environ["SGLANG_ASCEND_CHECK_OPS"] = "1"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(store, size),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=60),
    )
    groups = {}
    for world in worlds:
        process_group = dist.new_group(list(range(world)))
        if rank < world:
            # Two ranks to a node where there are four, so that bytes cross both kinds of link.
            nodes = max(world // 2, 1)
            topology = Topology(nodes, world // nodes)
            groups[world] = RankGroup(process_group, topology, timeout_s=timeout_s)
    while True:
        try:
            case, world, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, case(groups[world], *arguments)))
        except Exception:
            pipe.send((False, traceback.format_exc()))
