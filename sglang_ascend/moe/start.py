"""Starting expert parallelism in one rank, once its weights are loaded."""

from __future__ import annotations

from dataclasses import replace

import torch

from sglang_ascend.comm.exchange_cost import MoeShape, bf16_shape
from sglang_ascend.comm.hardware import load_hardware
from sglang_ascend.comm.topology import Topology
from sglang_ascend.comm.transport import RankGroup
from sglang_ascend.errors import ConfigError
from sglang_ascend.moe import expert_parallel, settings, shared_ranks
from sglang_ascend.moe.dispatch.allgather_reducescatter import AllGatherReduceScatter
from sglang_ascend.moe.dispatch.calibration import calibrate
from sglang_ascend.moe.dispatch.dispatch_combine import DispatchCombine
from sglang_ascend.moe.dispatch.placement import ExpertPlacement
from sglang_ascend.moe.experts import check_supported
from sglang_ascend.moe.metrics import EpMetrics
from sglang_ascend.moe.settings import EpSettings

#: Where nothing is measured: memory, compute and what else the prediction does not rest on.
_BASE_HARDWARE = {"cpu": "reference_cpu", "npu": "a2_910b_376t"}
#: SGLang's own default for a collective is torch's half hour.
_TIMEOUT_S = 300.0


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
    if not layers:
        raise ConfigError("this model has no experts; drop --ep-size and --moe-a2a-backend")
    for layer in layers:
        check_supported(layer)
    chosen, parallel = settings.from_environment(), get_parallel()
    group = RankGroup(
        parallel.moe_ep_group.device_group,
        Topology(parallel.nnodes, parallel.moe_ep_size // parallel.nnodes),
        timeout_s=float(parallel.dist_timeout or _TIMEOUT_S),
    )
    first = layers[0]
    placement = ExpertPlacement(group.size, first.num_experts, chosen.shared_ranks)
    shape = wire_shape(first.hidden_size, first.top_k, placement, first.params_dtype, chosen)
    transports = {
        "allgather": AllGatherReduceScatter(group, placement, chosen.int8_wire),
        "dispatch": DispatchCombine(group, placement, chosen.int8_wire),
    }
    device = first.w13_weight.device
    hardware = chosen.hardware or calibrate(
        transports,
        load_hardware(_BASE_HARDWARE[device.type]),
        shape,
        dtype=first.params_dtype,
        device=device,
        synchronize=torch.npu.synchronize if device.type == "npu" else lambda: None,
    )
    if chosen.shared_ranks:
        shared_ranks.settle(model, placement, group.rank)
    layer_ids = [layer.layer_id for layer in layers]
    expert_parallel.activate(
        expert_parallel.ExpertParallel(
            transports,
            shape,
            hardware,
            layer_ids,
            EpMetrics(group.rank, layer_ids, get_observability().enable_metrics),
            None if chosen.dispatch == "auto" else chosen.dispatch,
        )
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
