"""Seams that keep SGLang's own bookkeeping off Triton and CUDA."""

from __future__ import annotations

from sglang_ascend.seam import Seam

PLUGIN_SEAMS: tuple[Seam, ...] = (
    Seam(
        name="last-cache-slot",
        target="sglang.srt.mem_cache.allocation.get_last_loc",
        kind="replace",
        hook="sglang_ascend.plugin.cache_slots:get_last_loc",
        processes=("scheduler",),
        symptom="page sizes above 1: a Triton kernel is launched for any attention backend but two",
        why_safe="same result from SGLang's own torch function; called once a batch, not per layer",
        upstream="none found",
        remove_when="SGLang asks the platform's supports_triton here, as it does elsewhere",
    ),
    Seam(
        name="direct-collectives",
        target="sglang.srt.distributed.parallel_state._is_cpu",
        kind="set",
        hook="sglang_ascend.plugin.multi_rank:CALLS_TORCH_DISTRIBUTED",
        processes=("scheduler",),
        symptom="with several ranks: reg_all_gather_into_tensor is not registered for CPU tensors",
        why_safe="selects SGLang's own torch.distributed branch of all-gather and reduce-scatter",
        upstream="none found",
        remove_when="SGLang registers its collectives for a plug-in's dispatch key",
    ),
    Seam(
        name="unpinned-token-counts",
        target="sglang.srt.model_executor.forward_batch_info._is_cpu",
        kind="set",
        hook="sglang_ascend.plugin.multi_rank:CALLS_TORCH_DISTRIBUTED",
        processes=("scheduler",),
        symptom="DP attention: pinned memory is asked for, which fails on a CPU and hangs graphs on "
        "an NPU (sglang#38971)",
        why_safe="a few integers are copied from pageable memory; the fill value is our backend's",
        upstream="sgl-project/sglang#38971",
        remove_when="SGLang asks the platform for pinned memory here, as elsewhere",
    ),
    Seam(
        name="dp-row-copy",
        target="sglang.srt.layers.dp_attention.memcpy_func",
        kind="replace",
        hook="sglang_ascend.plugin.multi_rank:copy_rows",
        processes=("scheduler",),
        symptom="DP attention: a Triton kernel copies rows between local and gathered buffers",
        why_safe="same rows, copied by torch",
        upstream="none found",
        remove_when="SGLang asks the platform's supports_triton here",
    ),
    Seam(
        name="integer-all-reduce",
        target="sglang.srt.distributed.parallel_state.inplace_all_reduce",
        kind="replace",
        hook="sglang_ascend.plugin.multi_rank:inplace_all_reduce",
        processes=("scheduler",),
        symptom="DP attention: gathering token ids fails, the custom operator has no CPU kernel",
        why_safe="the sum that the operator computes, by torch.distributed",
        upstream="none found",
        remove_when="SGLang registers its collectives for a plug-in's dispatch key",
    ),
)
