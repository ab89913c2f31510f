"""What must hold whatever the constants: more hardware is never slower, more work never faster."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_ascend.comm.hardware import load_hardware
from sglang_ascend.deploy import deployment_file
from sglang_ascend.deploy.deployment import Phase, Speculation
from sglang_ascend.planner import constants, imbalance, queueing
from sglang_ascend.planner.device import Device
from sglang_ascend.planner.predict import Model, predict
from sglang_ascend.planner.workload import Workload

NAMES = ("a2_pd_48", "qwen3_235b_a2_16", "qwen3_32b_a2_4", "cm384_pd_256")
DEPLOYMENTS = {name: deployment_file.read(name) for name in NAMES}
WORK = Workload(input_tokens=2048, output_tokens=1024)
RATES = ("compute.int8", "compute.bf16", "memory.bandwidth", "link.intra_node.bandwidth",
         "link.inter_node.bandwidth")  # fmt: skip
COSTS = ("compute.fixed_matmul", "compute.fixed_vector", "collective.fixed", "collective.post")


def _times(name: str, hardware=None, requests: float = 32.0) -> tuple[float, float]:
    """Seconds of a prefill batch and of a decode step, micro-batches off.

    With them on, list scheduling may answer a faster engine with a worse order (Graham 1969).
    """
    deployment = DEPLOYMENTS[name]
    model = Model(deployment, WORK, loaded=hardware)
    out = []
    for phase in (Phase.PREFILL, Phase.DECODE):
        role = deployment.role(phase)
        role = dataclasses.replace(
            role, features=dataclasses.replace(role.features, micro_batches=1)
        )
        if phase is Phase.PREFILL:
            out.append(model.prefill_step(role, 16.0).seconds)
        else:
            out.append(model.decode_step(role, requests).seconds)
    return tuple(out)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(NAMES), st.sampled_from(RATES), st.floats(1.01, 8))
def test_a_faster_part_never_slows_a_step(name, key, factor):
    hardware = load_hardware(DEPLOYMENTS[name].hardware)
    faster = hardware.with_values({key: hardware.constants[key].value * factor}, "test")
    assert all(b <= a * (1 + 1e-12) for a, b in zip(_times(name, hardware), _times(name, faster)))


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(NAMES), st.sampled_from(COSTS), st.floats(1.01, 8))
def test_a_larger_fixed_cost_never_speeds_a_step_up(name, key, factor):
    hardware = load_hardware(DEPLOYMENTS[name].hardware)
    slower = hardware.with_values({key: hardware.constants[key].value * factor}, "test")
    assert all(b >= a * (1 - 1e-12) for a, b in zip(_times(name, hardware), _times(name, slower)))


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(NAMES), st.integers(1, 200), st.integers(1, 56))
def test_more_requests_take_longer_and_more_context_too(name, requests, more):
    assert _times(name, requests=requests + more)[1] >= _times(name, requests=requests)[1]
    model = Model(DEPLOYMENTS[name], WORK)
    longer = Model(DEPLOYMENTS[name], dataclasses.replace(WORK, input_tokens=2048 + 64 * more))
    role = DEPLOYMENTS[name].role(Phase.DECODE)
    role = dataclasses.replace(role, features=dataclasses.replace(role.features, micro_batches=1))
    assert longer.decode_step(role, requests).seconds >= model.decode_step(role, requests).seconds


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(NAMES), st.floats(1, 1e5), st.floats(1, 4e4), st.sampled_from(["bf16"]))
def test_no_kernel_beats_the_peak(name, rows, inner, dtype):
    deployment = DEPLOYMENTS[name]
    hardware = load_hardware(deployment.hardware)
    device = Device(constants.default().on(hardware), constants.default())
    work = device.matmul(rows, int(inner), 512, dtype, inner * 1024, 64.0)
    assert work.flops / work.seconds < hardware.operations_per_s(dtype)
    assert work.nbytes / work.seconds < hardware.si("memory.bandwidth")


def test_memory_grows_with_the_batch():
    budgets = []
    for tokens in (4096, 16384, 65536):
        role = dataclasses.replace(DEPLOYMENTS["a2_pd_48"].roles[0], batch_tokens=tokens)
        model = Model(DEPLOYMENTS["a2_pd_48"], WORK)
        budgets.append(sum(model.memory(role).parts.values()))
    assert budgets == sorted(budgets) and budgets[0] < budgets[-1]


@given(st.integers(0, 4), st.floats(0, 1))
def test_tokens_a_step(drafts, acceptance):
    tokens = Speculation(drafts, acceptance).tokens_per_step
    assert 1 <= tokens <= drafts + 1
    by_hand = 1 + sum(acceptance**i for i in range(1, drafts + 1))
    assert tokens == pytest.approx(by_hand)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([(8, 32), (32, 9), (64, 5)]), st.floats(0.01, 1))
def test_skew_makes_ranks_uneven_and_copies_help(layout, skew):
    ranks, on_rank = layout
    slots = ranks * on_rank
    even = imbalance.systematic(256, slots, ranks, skew)
    assert 1 <= even <= imbalance.systematic(256, slots, ranks, skew * 1.5) + 1e-9
    assert imbalance.systematic(256, slots + ranks, ranks, skew) <= even + 1e-9


def test_without_skew_ranks_are_even():
    assert imbalance.systematic(256, 288, 32, 1e-9) == pytest.approx(1)
    assert imbalance.by_chance(1e9, 32) == pytest.approx(1, abs=1e-3)


@settings(max_examples=15, deadline=None)
@given(st.floats(0.05, 0.9), st.floats(1.01, 1.1))
def test_percentiles_grow_with_the_load_and_in_order(load, more):
    def batch_s(prompts: float) -> float:
        return 0.05 + 0.01 * prompts

    full = 16 / batch_s(16)
    light, heavy = (queueing.prefill(load * f * full, batch_s, 16).ttft_s for f in (1, more))
    assert list(light.values()) == sorted(light.values())
    assert all(heavy[p] >= light[p] - 1e-12 for p in light)


def test_decode_under_light_load_runs_at_the_smallest_batch():
    found, mean = queueing.tpot_percentiles(1e-4, 100, lambda n: 0.02 + 0.001 * n, 64, 8)
    assert found[50] == pytest.approx(0.02, rel=0.02)
    assert mean == pytest.approx(1, abs=0.05)


def test_decode_population_obeys_littles_law():
    rate, output = 40.0, 200
    found, mean = queueing.tpot_percentiles(rate, output, lambda n: 0.02, 512, 8)
    assert found[99] == pytest.approx(0.02)
    assert mean == pytest.approx(rate * output * 0.02, rel=0.01)


def test_prediction_is_the_slower_role():
    found = predict(DEPLOYMENTS["a2_pd_48"], dataclasses.replace(WORK, tpot_ms=100))
    slower = min(role.requests_per_s for role in found.roles.values())
    assert found.requests_per_s == slower
    for role in found.roles.values():
        assert sum(role.step.parts.values()) == pytest.approx(role.step.seconds)


def test_one_set_of_cards_for_both_phases_shares_its_time():
    found = predict(DEPLOYMENTS["qwen3_32b_a2_4"], dataclasses.replace(WORK, tpot_ms=50))
    rates = [role.requests_per_s for role in found.roles.values()]
    assert found.requests_per_s == pytest.approx(1 / sum(1 / rate for rate in rates))
    busy = dataclasses.replace(WORK, tpot_ms=50, arrival_per_s=0.6 * found.requests_per_s)
    under_load = predict(DEPLOYMENTS["qwen3_32b_a2_4"], busy)
    left = 1 - busy.arrival_per_s / rates[0]
    model = Model(DEPLOYMENTS["qwen3_32b_a2_4"], busy)
    role = DEPLOYMENTS["qwen3_32b_a2_4"].roles[0]
    assert under_load.tpot_s[50] >= model.tpot_s(role, 0.25) / left


def test_a_cached_prefix_saves_less_than_its_share_of_the_work():
    deployment = DEPLOYMENTS["cm384_pd_256"]
    role = deployment.roles[0]
    seconds = [
        Model(deployment, Workload(input_tokens=4096, prefix_hit=hit))
        .prefill_step(role, 64.0)
        .seconds
        for hit in (0.0, 0.5)
    ]
    assert 0.5 * seconds[0] < seconds[1] < seconds[0]
