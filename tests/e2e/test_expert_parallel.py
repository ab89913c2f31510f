"""Greedy tokens do not depend on how many ranks there are, nor on how tokens reach their experts.

Every server answers 200 requests of random lengths that arrive at random, and its tokens are
compared with those of a server with one rank: ranks prefill while others decode, some have no
tokens at all. `--ep-dispatch alternate` changes the transport from step to step, so both are taken
in the same traffic.
"""

from __future__ import annotations

import os
import re
import signal
import time

import psutil
import pytest

from tests.support.reference import assert_same_tokens
from tests.support.traffic import send

MODEL = ("--model-path", "tiny-deepseek-v3", "--max-total-tokens", "16384")
DP_ATTENTION = "--enable-dp-attention"


def check(server, mixed_traffic):
    traffic, expected = mixed_traffic
    for one, got, want in zip(traffic, send(server, traffic), expected, strict=True):
        assert_same_tokens(one.prompt, got, want)


def ranks(count: int, groups: int) -> tuple[str, ...]:
    """Flags for so many ranks in so many DP-attention groups."""
    flags = ("--tp-size", str(count), "--ep-size", str(count))
    return (*flags, "--dp-size", str(groups), DP_ATTENTION) if groups > 1 else flags


def test_one_rank_answers_as_transformers_does(references, mixed_traffic):
    """Every fourth request: the others have the same lengths and prefixes."""
    reference = references("tiny-deepseek-v3")
    traffic, answers = mixed_traffic
    for one, answer in list(zip(traffic, answers, strict=True))[::4]:
        assert_same_tokens(one.prompt, answer.ids, reference.greedy(one.prompt, one.tokens))


def test_two_dp_attention_groups(ep2_server, mixed_traffic):
    check(ep2_server, mixed_traffic)
    counts = choices(ep2_server)
    assert counts["allgather"] > 10 and counts["dispatch"] > 10


def choices(server) -> dict[str, float]:
    """Steps of rank 0 by transport, from the metrics."""
    pattern = r'ep_choices_total\{ep_rank="0",transport="(\w+)"\} (\S+)'
    return {name: float(n) for name, n in re.findall(pattern, server.get("/metrics").text)}


def test_metrics_tell_tokens_bytes_and_load(ep2_server, mixed_traffic):
    text = ep2_server.get("/metrics").text
    tokens = [float(n) for n in re.findall(r"ep_tokens_total\{[^}]*\} (\S+)", text)]
    assert len(tokens) == 2 and min(tokens) > 0
    sent = re.findall(r'ep_sent_bytes_total\{ep_rank="1",(.*)\} (\S+)', text)
    over = {labels: float(nbytes) for labels, nbytes in sent if 'link="intra_node"' in labels}
    for operation in ("all_gather", "reduce_scatter", "dispatch", "combine"):
        assert over[f'link="intra_node",operation="{operation}"'] > 0
    load = re.findall(r"ep_expert_load_max_over_mean\{[^}]*layer=\"(\d)\"\} (\S+)", text)
    assert {layer for layer, _ in load} == {"1", "2"}
    assert all(1 <= float(peak) <= 16 for _, peak in load)


def test_tensor_parallel_attention_and_the_shared_expert_apart(start_server, mixed_traffic):
    """Two ranks share each attention head group; one holds the shared expert only."""
    server = start_server(
        *MODEL,
        *ranks(2, 1),
        *("--ep-dispatch", "alternate", "--ep-shared-expert-ranks", "1", "--dist-timeout", "10"),
    )
    check(server, mixed_traffic)
    rank_that_hangs_is_named(server)


def rank_that_hangs_is_named(server):
    """A stopped rank ends the server with an error that names it, soon after the timeout."""
    scheduler = scheduler_process(server, "TP1")
    os.kill(scheduler.pid, signal.SIGSTOP)
    try:
        server.post("/generate", {"text": "A", "sampling_params": {"max_new_tokens": 4}}, 90)
    except OSError:
        pass
    wait_for_end(server, 60)
    log = server.log.read_text()
    assert re.search(r"rank 0 waited \d+\.\d s at step \d+, .*rank 1 gave no sign of life", log)


def scheduler_process(server, rank: str) -> psutil.Process:
    children = psutil.Process(server.process.pid).children(recursive=True)
    return next(child for child in children if rank in "".join(child.cmdline()))


def wait_for_end(server, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while server.process.poll() is None:
        assert time.monotonic() < deadline, f"still up after {seconds} s:\n{server.tail()}"
        time.sleep(0.2)


def test_groups_of_two_ranks(start_server, mixed_traffic):
    """Four ranks in two DP-attention groups, which share heads within a group."""
    server = start_server(*MODEL, *ranks(4, 2), "--ep-dispatch", "alternate")
    check(server, mixed_traffic)
    server.stop()


def test_four_groups_choose_and_two_ranks_for_the_shared_expert(start_server, mixed_traffic):
    server = start_server(*MODEL, *ranks(4, 4), "--ep-shared-expert-ranks", "2")
    check(server, mixed_traffic)
    assert "expert parallelism, step" in server.log.read_text()
    rank_that_dies_ends_the_group(server)


def rank_that_dies_ends_the_group(server):
    os.kill(scheduler_process(server, "TP2").pid, signal.SIGKILL)
    wait_for_end(server, 60)
    log = server.log.read_text()
    assert re.search(r"rank \d waited .*rank 2 gave no sign of life", log)


@pytest.mark.slow
@pytest.mark.parametrize("dispatch", ["allgather", "dispatch", "auto"])
def test_eight_ranks(start_server, mixed_traffic, dispatch):
    server = start_server(*MODEL, *ranks(8, 8), "--ep-dispatch", dispatch)
    check(server, mixed_traffic)
    server.stop()


@pytest.mark.slow
def test_int8_on_the_wire_answers_nearly_the_same(start_server, mixed_traffic):
    """Quantised activations move few tokens of a greedy answer."""
    server = start_server(*MODEL, *ranks(2, 2), "--ep-dispatch", "alternate", "--ep-wire", "int8")
    traffic, expected = mixed_traffic
    pairs = zip(send(server, traffic), expected, strict=True)
    same = sum(got[0] == want.ids[0] for got, want in pairs)
    assert same > 0.9 * len(traffic)
    server.stop()
