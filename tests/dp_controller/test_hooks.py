"""SGLang's controller with our hooks: what is sent where, and what passes on untouched."""

from __future__ import annotations

from array import array
from types import SimpleNamespace

import pytest
from sglang.srt.managers.data_parallel_controller import DataParallelController
from sglang.srt.managers.io_struct import (
    AbortReq,
    CloseSessionReqInput,
    FlushCacheReqInput,
    OpenSessionReqInput,
    SessionParams,
    TokenizedEmbeddingReqInput,
    TokenizedGenerateReqInput,
)
from sglang.srt.managers.load_snapshot import (
    LoadSnapshot,
    QueueMetrics,
    ShmLoadSnapshotReader,
    ShmLoadSnapshotWriter,
)
from sglang.srt.sampling.sampling_params import SamplingParams

from sglang_ascend.dp_controller import flag, hooks
from sglang_ascend.dp_controller.controller_state import ControllerState, to_report

RANKS = 3


class Socket:
    """Keeps what SGLang sends to a rank."""

    def __init__(self):
        self.sent = []

    def send_pyobj(self, obj, **_):
        self.sent.append(obj)


@pytest.fixture
def controller(tmp_path):
    """SGLang's class without its processes, over real shared-memory load reports."""
    path = str(tmp_path / "loads")
    c = object.__new__(DataParallelController)
    c.workers = [Socket() for _ in range(RANKS)]
    c.status = [True] * RANKS
    c._active_workers = list(range(RANKS))
    c.round_robin_counter = 0
    c.control_message_step = 1
    c.writers = [ShmLoadSnapshotWriter(path, RANKS, rank) for rank in range(RANKS)]
    c.now_s = 100.0
    read = ShmLoadSnapshotReader(path, RANKS).read_all
    setattr(c, hooks.STATE, ControllerState(RANKS, 1, True, read, clock=lambda: c.now_s))
    return c


def generate(rid, tokens=(), **more):
    return TokenizedGenerateReqInput(
        rid=rid,
        input_text=None,
        input_ids=array("q", tokens),
        input_embeds=None,
        mm_inputs=more.pop("mm_inputs", None),
        token_type_ids=None,
        sampling_params=SamplingParams(max_new_tokens=8, ignore_eos=True),
        return_logprob=False,
        logprob_start_len=-1,
        top_logprobs_num=0,
        token_ids_logprob=None,
        stream=False,
        **more,
    )


def send(controller, req):
    """Rank that got the request."""
    before = [len(worker.sent) for worker in controller.workers]
    hooks.dispatch(DataParallelController.round_robin_scheduler, controller, req)
    got = [len(w.sent) - n for w, n in zip(controller.workers, before)]
    assert sorted(got) == [0] * (RANKS - 1) + [1]
    rank = got.index(1)
    assert controller.workers[rank].sent[-1] is req
    return rank


def test_prefixes_stay_together_unless_something_else_separates_them(controller):
    prompt = list(range(256))
    home = send(controller, generate("a", prompt))
    assert send(controller, generate("b", [*prompt[:200], *range(500, 600)])) == home
    assert send(controller, generate("c", prompt, cache_salt="other")) != home
    assert send(controller, generate("d", prompt, lora_id="other")) != home


def test_without_our_state_sglang_goes_round(controller):
    delattr(controller, hooks.STATE)
    prompt = list(range(256))
    assert [send(controller, generate(f"{n}", prompt)) for n in range(4)] == [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("given", "resolved", "elastic", "policy", "expected"),
    [
        ("auto", "round_robin", None, "ascend", True),
        ("auto", "round_robin", None, "upstream", False),
        ("auto", "follow_bootstrap_room", None, "ascend", False),
        ("auto", "round_robin", "mooncake", "ascend", False),
        ("round_robin", "round_robin", None, "ascend", False),
        ("total_tokens", "total_tokens", None, "ascend", False),
    ],
)
def test_where_it_stands_in_for_round_robin(
    given, resolved, elastic, policy, expected, monkeypatch
):
    monkeypatch.setenv(flag.ENV, policy)
    args = SimpleNamespace(load_balance_method=given, elastic_ep_backend=elastic)
    # How SGLang keeps what it resolved beside what the user gave.
    args._resolved_overrides = [("handle_load_balance_method", {"load_balance_method": resolved})]
    assert hooks.applies(args) is expected


def test_images_are_not_taken_for_a_shared_prefix(controller):
    prompt = [7] * 256
    sent = [send(controller, generate(f"{n}", prompt, mm_inputs=object())) for n in range(3)]
    assert sorted(sent) == [0, 1, 2]


def test_embedding_requests_are_spread(controller):
    reqs = [
        TokenizedEmbeddingReqInput(
            rid=f"{n}",
            input_text=None,
            input_ids=array("q", range(100 * n, 100 * n + 90)),
            mm_inputs=None,
            token_type_ids=None,
            sampling_params=SamplingParams(max_new_tokens=0),
        )
        for n in range(3)
    ]
    assert sorted(send(controller, req) for req in reqs) == [0, 1, 2]
    assert sum(load.kv for load in state(controller).router.loads().values()) == 270


def state(controller) -> ControllerState:
    return getattr(controller, hooks.STATE)


def test_sessions_and_named_ranks(controller):
    for number in range(3):
        assert send(controller, generate(f"{number}", range(64), routed_dp_rank=2)) == 2
    params = SessionParams(id="s")
    home = send(controller, generate("t1", range(9), session_params=params))
    assert send(controller, generate("t2", range(9), routed_dp_rank=(home + 1) % RANKS)) != home
    assert send(controller, generate("t3", range(5), session_params=params)) == home
    key = send(controller, generate("k1", range(9), routing_key="k"))
    assert send(controller, generate("k2", range(5), routing_key="k")) == key


def test_a_named_rank_that_is_down_is_refused_as_sglang_refuses_it(controller):
    controller._active_workers = [0, 1]
    with pytest.raises(ValueError, match="DP rank 2 is not active"):
        hooks.dispatch(
            DataParallelController.round_robin_scheduler,
            controller,
            generate("a", routed_dp_rank=2),
        )


def test_ranks_that_are_down_get_nothing(controller):
    controller.status[0] = False
    controller.workers[1] = None
    controller._active_workers = [0, 1, 2]
    hooks.dispatch(DataParallelController.round_robin_scheduler, controller, generate("a"))
    assert len(controller.workers[2].sent) == 1
    controller.status = [False] * RANKS
    with pytest.raises(RuntimeError, match="all 3 active DP workers are unavailable"):
        hooks.dispatch(DataParallelController.round_robin_scheduler, controller, generate("b"))


def test_control_messages_reach_every_rank_in_order(controller):
    home = send(controller, generate("a", range(256)))
    send(controller, generate("s", range(9), session_params=SessionParams(id="s")))
    messages = [
        OpenSessionReqInput(capacity_of_str_len=100, session_id="s"),
        FlushCacheReqInput(),
        AbortReq(rid="a"),
        AbortReq(abort_all=True),
        CloseSessionReqInput(session_id="s"),
    ]
    before = [len(worker.sent) for worker in controller.workers]
    for message in messages:
        assert hooks.note_control(controller, message) is None
        controller.send_control_message(message)
    for worker, count in zip(controller.workers, before):
        assert all(a is b for a, b in zip(worker.sent[count:], messages, strict=True))
    router = state(controller).router
    assert router.loads()[home].kv in (0, 17)
    assert router._indexes[home].match(state(controller)._chain(generate("a", range(256)))) == 0
    assert not router._sessions


def test_load_reports_are_read_from_shared_memory(controller):
    """A rank that reports a full pool gets nothing; when it reports that it is empty, it does."""
    busy = LoadSnapshot(
        timestamp=99.0, num_running_reqs=9, num_total_tokens=9000, max_total_num_tokens=10_000
    )
    busy.dp_rank = 0
    controller.writers[0].write(busy)
    assert {send(controller, generate(f"{n}", [n] * 64)) for n in range(4)} == {1, 2}
    for rank, writer in enumerate(controller.writers):
        idle = LoadSnapshot(timestamp=103.0, dp_rank=rank, max_total_num_tokens=10_000)
        writer.write(idle)
        idle.timestamp = 104.0
    controller.now_s = 104.0
    assert send(controller, generate("later", [77] * 64)) == 0


def test_reports_of_sglang_are_understood():
    snapshot = LoadSnapshot(
        timestamp=50.0,
        num_running_reqs=2,
        num_waiting_reqs=3,
        num_total_tokens=700,
        num_waiting_uncached_tokens=90,
        max_total_num_tokens=1000,
        decode_moments=[4.0, 8.0, 2e6, 16.0, 0.0, 9.0],
        queues=QueueMetrics(waiting=3, grammar=1, paused=0, retracted=0, prealloc_ready=0),
    )
    report = to_report(snapshot, now_s=60.0)
    assert (report.time_s, report.requests, report.kv_tokens) == (50.0, 6, 700)
    assert (report.prefill_tokens, report.pool_tokens) == (90, 1000)
    assert (report.decode_steps, report.decode_s, report.generated_tokens) == (4, 2, 9)
    assert to_report(snapshot, now_s=40.0).time_s == 40.0
