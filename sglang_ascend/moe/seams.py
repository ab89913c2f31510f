"""Seams of the moe room."""

from __future__ import annotations

from sglang_ascend.seam import Seam

MOE_SEAMS: tuple[Seam, ...] = (
    Seam(
        name="gate-grouped-sigmoid",
        target="sglang.srt.layers.moe.topk.biased_grouped_topk",
        kind="replace",
        hook="sglang_ascend.moe.gate:grouped_sigmoid",
        processes=("scheduler",),
        symptom="the NPU's fused gating operator is never called for DeepSeek-V3's gate",
        why_safe="same signature; the surrounding select_experts is untouched; parity is tested",
        upstream="none found",
        remove_when="SGLang's TopK lets a platform replace the choice without its bookkeeping",
    ),
    Seam(
        name="gate-softmax",
        target="sglang.srt.layers.moe.topk.fused_topk_native",
        kind="around",
        hook="sglang_ascend.moe.gate:softmax",
        processes=("scheduler",),
        symptom="the NPU's fused gating operator is never called for softmax gates",
        why_safe="everything but a plain softmax gate goes to the original",
        upstream="none found",
        remove_when="SGLang's TopK lets a platform replace the choice without its bookkeeping",
    ),
    Seam(
        name="expert-parallel-forward",
        target="sglang.srt.hardware_backend.npu.moe.fuseep.forward_fuseep",
        kind="replace",
        hook="sglang_ascend.moe.expert_parallel:forward",
        processes=("scheduler",),
        symptom="--moe-a2a-backend ascend_fuseep calls deep_ep, which is not there, and knows no "
        "AllGather/ReduceScatter",
        why_safe="called by FusedMoE.forward for that backend only, with this rank's own tokens, "
        "and returns their finished routed output",
        upstream="none found",
        remove_when="SGLang lets a plug-in register an MoE all-to-all backend",
    ),
    Seam(
        name="step-token-counts",
        target="sglang.srt.model_executor.model_runner.ModelRunner._prepare_eager_forward_batch",
        kind="around",
        hook="sglang_ascend.moe.step:record",
        processes=("scheduler",),
        symptom="expert parallelism does not know the token counts of the other ranks",
        why_safe="reads the batch before and after; changes nothing",
        upstream="none found",
        remove_when="SGLang hands every rank's real token counts to the MoE dispatcher",
    ),
    Seam(
        name="routed-experts-storage",
        target="sglang.srt.layers.moe.fused_moe_triton.layer.FusedMoE.__init__",
        kind="around",
        hook="sglang_ascend.moe.shared_ranks:expert_layer_init",
        processes=("scheduler",),
        symptom="--ep-shared-expert-ranks: routed experts are spread over all ranks",
        why_safe="without the flag the original runs untouched",
        upstream="none found",
        remove_when="SGLang places shared experts on ranks of their own",
    ),
    Seam(
        name="routed-experts-location",
        target="sglang.srt.model_executor.model_runner.ModelRunner."
        "maybe_init_expert_location_metadata",
        kind="around",
        hook="sglang_ascend.moe.shared_ranks:expert_location_init",
        processes=("scheduler",),
        symptom="--ep-shared-expert-ranks: slots have to divide over all ranks",
        why_safe="without the flag the original runs untouched",
        upstream="none found",
        remove_when="SGLang places shared experts on ranks of their own",
    ),
    Seam(
        name="shared-expert-apart",
        target="sglang.srt.models.deepseek_v2.DeepseekV2MoE._forward_shared_experts",
        kind="around",
        hook="sglang_ascend.moe.shared_ranks:shared_output",
        processes=("scheduler",),
        symptom="--ep-shared-expert-ranks: the shared expert is added a second time",
        why_safe="without the flag the original runs untouched",
        upstream="none found",
        remove_when="SGLang places shared experts on ranks of their own",
    ),
    Seam(
        name="token-counts-of-all-ranks",
        target="sglang.srt.utils.common.require_mlp_tp_gather",
        kind="around",
        hook="sglang_ascend.moe.step:needs_all_counts",
        processes=("scheduler",),
        symptom="--moe-dense-tp-size 1: a rank knows its own token count only",
        why_safe="SGLang answers the same for FlashInfer's all-to-all, for the same reason",
        upstream="none found",
        remove_when="SGLang hands every rank's real token counts to the MoE dispatcher",
    ),
)
