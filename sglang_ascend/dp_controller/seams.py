"""Seams of the DP controller."""

from __future__ import annotations

from sglang_ascend.seam import Seam

_CONTROLLER = "sglang.srt.managers.data_parallel_controller.DataParallelController."
_HOOKS = "sglang_ascend.dp_controller.hooks:"

DP_CONTROLLER_SEAMS: tuple[Seam, ...] = (
    Seam(
        name="dp-policy",
        target=_CONTROLLER + "init_dispatcher",
        kind="after",
        hook=_HOOKS + "attach",
        processes=("dp_controller",),
        symptom="as dp-rank-choice, which finds its state here",
        why_safe="adds one attribute to the controller",
        upstream="none found",
        remove_when="with dp-rank-choice",
    ),
    Seam(
        name="dp-rank-choice",
        target=_CONTROLLER + "round_robin_scheduler",
        kind="around",
        hook=_HOOKS + "dispatch",
        processes=("dp_controller",),
        symptom="requests go round the ranks: prefixes are computed once a rank, long requests "
        "pile up, and turns of a session land on ranks that do not have it",
        why_safe="sends the same request over the same socket; SGLang's method answers where "
        "--dp-policy upstream or a --load-balance-method was given, and where no rank is live",
        upstream="none found",
        remove_when="SGLang lets a plug-in register a load balance method",
    ),
    Seam(
        name="dp-control-messages",
        target=_CONTROLLER + "send_control_message",
        kind="before",
        hook=_HOOKS + "note_control",
        processes=("dp_controller",),
        symptom="the policy counts on caches that were flushed and on requests that were aborted",
        why_safe="reads the message; order and receivers stay",
        upstream="none found",
        remove_when="with dp-rank-choice",
    ),
    Seam(
        name="dp-event-loop",
        target=_CONTROLLER + "event_loop",
        kind="replace",
        hook=_HOOKS + "event_loop",
        processes=("dp_controller",),
        symptom="an idle controller keeps a core busy, which a laptop's ranks need themselves",
        why_safe="same messages in the same order; a message wakes the process at once",
        upstream="none found",
        remove_when="SGLang's loop waits for its socket",
    ),
    Seam(
        name="dp-load-reports",
        target="sglang.srt.managers.load_snapshot.zmq_reader_owner",
        kind="around",
        hook=_HOOKS + "reader_owner",
        processes=("http_server", "tokenizer_worker", "dp_controller"),
        symptom="DP attention over several nodes: load reports reach the controller only when "
        "somebody asks /v1/loads",
        why_safe="what SGLang does for its own load-aware methods; same answer in every process",
        upstream="none found",
        remove_when="with dp-rank-choice",
    ),
)
