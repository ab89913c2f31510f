"""Seams of the sampling room."""

from __future__ import annotations

from sglang_ascend.seam import Seam

_SAMPLER = "sglang.srt.layers.sampler."

SAMPLING_SEAMS: tuple[Seam, ...] = (
    Seam(
        name="request-seeds",
        target="sglang.srt.sampling.sampling_batch_info.SamplingBatchInfo.from_schedule_batch",
        kind="after",
        hook="sglang_ascend.sampling.seeds:attach",
        processes=("scheduler",),
        symptom="a client's seed is ignored unless the server runs deterministic inference",
        why_safe="fills one optional tensor; both samplers that read it are ours",
        upstream="none found",
        remove_when="SGLang attaches the seeds of requests that gave one",
    ),
    Seam(
        name="seed-of-each-choice",
        target="sglang.srt.managers.tokenizer_manager.TokenizerManager._send_one_request",
        kind="around",
        hook="sglang_ascend.sampling.choices:send_with_own_seed",
        processes=("http_server", "tokenizer_worker"),
        symptom="n answers with one seed are n times the same answer",
        why_safe="touches requests with n > 1 and a seed only, after they were serialised",
        upstream="none found",
        remove_when="SGLang derives a seed for each choice",
    ),
    Seam(
        name="sample",
        target=_SAMPLER + "sampling_from_probs_torch",
        kind="replace",
        hook="sglang_ascend.sampling.sampler:from_probabilities",
        processes=("scheduler",),
        symptom="seeds of a mixed batch are not understood",
        why_safe="same arguments, result and distribution",
        upstream="none found",
        remove_when="SGLang attaches the seeds of requests that gave one",
    ),
    Seam(
        name="filter-and-sample",
        target=_SAMPLER + "top_k_top_p_min_p_sampling_from_probs_torch",
        kind="around",
        hook="sglang_ascend.sampling.sampler:filtered",
        processes=("scheduler",),
        symptom="min_p with a seed fails an assertion; the NPU's fused filter is never called",
        why_safe="same arguments, result and distribution; the variant with more results stays",
        upstream="none found",
        remove_when="SGLang attaches seeds, and its sampler takes a platform's filter",
    ),
    Seam(
        name="greedy-choice",
        target=_SAMPLER + "Sampler.forward",
        kind="around",
        hook="sglang_ascend.sampling.sampler:greedy",
        processes=("scheduler",),
        symptom="a tenth of a decode step of 16 requests is torch.argmax, whose threads then spin "
        "where the next kernels want to run",
        why_safe="same index, of equals the first; whatever else is asked for goes to SGLang",
        upstream="none",
        remove_when="torch.argmax on a CPU is vectorised over rows",
        devices=("reference",),
    ),
)
