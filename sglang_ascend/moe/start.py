"""Starting expert parallelism in one rank, once its weights are loaded."""

from __future__ import annotations

from dataclasses import replace

import torch

from sglang_ascend.comm.exchange_cost import MoeShape, bf16_shape
from sglang_ascend.comm.hardware import load_hardware
from sglang_ascend.comm.topology import Topology
from sglang_ascend.comm.transport import RankGroup
from sglang_ascend.moe import expert_parallel, npu_dispatch, settings, shared_ranks
from sglang_ascend.moe.dispatch.allgather_reducescatter import AllGatherReduceScatter
from sglang_ascend.moe.dispatch.calibration import calibrate
from sglang_ascend.moe.dispatch.dispatch_combine import DispatchCombine
from sglang_ascend.moe.dispatch.placement import ExpertPlacement
from sglang_ascend.moe.experts import check_supported
from sglang_ascend.moe.metrics import EpMetrics
from sglang_ascend.moe.settings import EpSettings
from sglang_ascend.ops.ep_limits import DispatchCall


def start(model: torch.nn.Module) -> None:
    """Set up the transports for a model whose experts are spread over the TP ranks.

    Does nothing where SGLang was told another way. All ranks call it together.

    Raises:
        ConfigError: experts that cannot be spread or computed like this.
    """
    from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE
    from sglang.srt.layers.moe.utils import get_moe_a2a_backend
    from sglang.srt.runtime_context import get_observability, get_parallel

    if not get_moe_a2a_backend().is_ascend_fuseep():
        return
    layers = [module for module in model.modules() if isinstance(module, FusedMoE)]
    for layer in layers:
        check_supported(layer)
    first, chosen, parallel = layers[0], settings.current(), get_parallel()
    group = RankGroup(
        parallel.moe_ep_group.device_group,
        Topology(parallel.nnodes, parallel.moe_ep_size // parallel.nnodes),
        timeout_s=float(parallel.dist_timeout),
    )
    placement = ExpertPlacement(group.size, first.num_experts, chosen.shared_ranks)
    shape = wire_shape(first.hidden_size, first.top_k, placement, first.params_dtype, chosen)
    device = first.w13_weight.device
    allgather = AllGatherReduceScatter(group, placement, chosen.int8_wire)
    if device.type == "npu":
        fitted = _fit_npu(group, placement, shape, chosen, device)
        own = RankGroup(
            npu_dispatch.own_communicator(group.process_group), group.topology, group.ledger
        )
        dispatch = DispatchCombine(
            own, placement, chosen.int8_wire, fitted.product, fitted.algorithm
        )
        capacity = fitted.capacity
        hardware = chosen.hardware or load_hardware(npu_dispatch.HARDWARE[fitted.product])
    else:
        dispatch, capacity = DispatchCombine(group, placement, chosen.int8_wire), None
        both = {"allgather": allgather, "dispatch": dispatch}
        hardware = chosen.hardware or calibrate(
            both, load_hardware("reference_cpu"), shape, dtype=first.params_dtype, device=device
        )
    if chosen.shared_ranks:
        shared_ranks.settle(model, placement, group.rank)
    layer_ids = [layer.layer_id for layer in layers]
    expert_parallel.activate(
        expert_parallel.ExpertParallel(
            {"allgather": allgather, "dispatch": dispatch},
            shape,
            hardware,
            layer_ids,
            EpMetrics(group.rank, layer_ids, get_observability().enable_metrics),
            chosen.turns,
            capacity,
            device,
        )
    )


def _fit_npu(
    group: RankGroup,
    placement: ExpertPlacement,
    shape: MoeShape,
    chosen: EpSettings,
    device: torch.device,
) -> npu_dispatch.NpuDispatch:
    from sglang.srt.runtime_context import get_parallel, get_schedule

    call = DispatchCall(
        product="",
        algorithm="",
        world_size=group.size,
        tokens=0,
        hidden=shape.hidden,
        top_k=shape.top_k,
        slots=placement.slots,
        shared_ranks=placement.shared_ranks,
        rank=group.rank,
    )
    schedule = get_schedule()
    longest = max(schedule.chunked_prefill_size or 0, schedule.max_running_requests or 0)
    return npu_dispatch.configure(
        torch.npu.get_device_name(device),
        group.topology.nodes,
        call,
        "dispatch" in chosen.turns,
        -(-longest // get_parallel().attn_tp_size),
    )


def wire_shape(
    hidden: int, top_k: int, placement: ExpertPlacement, dtype: torch.dtype, chosen: EpSettings
) -> MoeShape:
    """Bytes of a token on the wire with these settings."""
    shared_rows = 1 if placement.shared_ranks else 0
    if dtype == torch.bfloat16:
        shape = bf16_shape(hidden, top_k, placement.slots, int8_wire=chosen.int8_wire)
        return replace(shape, shared_rows=shared_rows)
    full = hidden * dtype.itemsize
    sent = hidden + torch.float32.itemsize if chosen.int8_wire else full
    # Gloo runs all of them as one exchange between all pairs of ranks.
    return MoeShape(
        hidden, top_k, placement.slots, sent, full, sent, full, "one_level", shared_rows
    )
