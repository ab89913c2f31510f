"""Layouts of experts that cannot work are refused with the numbers, before a process starts."""

from __future__ import annotations

import pytest

from sglang_ascend.deploy import expert_parallel, own_flags
from sglang_ascend.errors import ConfigError
from sglang_ascend.moe import settings
from sglang_ascend.moe.settings import EpSettings

MOE = {"n_routed_experts": 16, "n_shared_experts": 1}
DENSE = {"num_attention_heads": 9}


def check(ep=4, tp=4, config=MOE, chosen=None, **more):
    args = {"tp_size": tp, "ep_size": ep, **more}
    expert_parallel.check(args, config, chosen or EpSettings(), "reference")


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"ep": 1, "tp": 1},
        {"ep": 2, "tp": 4},
        {"chosen": EpSettings(dispatch="dispatch", int8_wire=True, shared_ranks=2)},
        {"chosen": EpSettings(shared_ranks=1), "ep_num_redundant_experts": 2},
        {"ep": 1, "moe_a2a_backend": "ascend_fuseep"},
        {"ep": 1, "tp": 2, "config": DENSE},
    ],
)
def test_accepted(layout):
    check(**layout)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"ep": 3, "tp": 3}, "16 slots do not divide over 3 ranks.*2 redundant slots more"),
        ({"chosen": EpSettings(shared_ranks=1)}, r"over 3 ranks \(4 less 1 for the shared"),
        ({"chosen": EpSettings(shared_ranks=4)}, "at most 3"),
        ({"chosen": EpSettings(shared_ranks=2), "config": {"num_experts": 16}}, "has none"),
        ({"ep": 1, "chosen": EpSettings(dispatch="dispatch")}, "--ep-dispatch dispatch needs"),
        ({"ep": 2, "chosen": EpSettings(int8_wire=True)}, "--ep-wire int8 .*give --ep-size 4"),
        ({"ep": 1, "tp": 1, "chosen": EpSettings(shared_ranks=1)}, "and more ranks"),
        ({"moe_a2a_backend": "deepep"}, "deepep does not run on reference"),
        ({"config": DENSE}, "needs a model with experts"),
    ],
)
def test_refused(layout, message):
    with pytest.raises(ConfigError, match=message):
        check(**layout)


def test_flags_reach_the_settings():
    parser = own_flags.argparse.ArgumentParser()
    own_flags.add_to(parser)
    typed = ["--ep-dispatch", "alternate", "--ep-wire", "int8", "--ep-shared-expert-ranks", "3"]
    environ: dict[str, str] = {}
    given = own_flags.given(parser.parse_args([*typed, "--ep-hardware", "a3_910c"]), environ)
    own_flags.publish(given, environ)
    chosen = settings.from_environment(environ)
    assert chosen.turns == ("allgather", "dispatch")
    assert (chosen.int8_wire, chosen.shared_ranks, chosen.hardware.name) == (True, 3, "a3_910c")


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["--ep-dispatch", "both"], "--ep-dispatch 'both' is unknown; choose auto or"),
        (["--ep-shared-expert-ranks", "-1"], "--ep-shared-expert-ranks '-1': give a number"),
        (["--ep-hardware", "h100"], "--ep-hardware 'h100': .*known names: a2_910b"),
    ],
)
def test_values_of_flags(typed, message):
    parser = own_flags.argparse.ArgumentParser()
    own_flags.add_to(parser)
    with pytest.raises(ConfigError, match=message):
        own_flags.given(parser.parse_args(typed), {})
