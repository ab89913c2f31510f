"""Hardware files: each constant with value, unit and source; each way to get one wrong is named."""

from __future__ import annotations

import pytest
import yaml

from sglang_ascend.comm.hardware import hardware_folder, known_hardware, load_hardware
from sglang_ascend.comm.hardware_constants import OPTIONAL, REQUIRED, UNITS
from sglang_ascend.comm.topology import LinkClass
from sglang_ascend.errors import ConfigError


def _write(tmp_path, change=None, **top):
    content = yaml.safe_load((hardware_folder() / "a2_910b_376t.yaml").read_text())
    if change:
        change(content["constants"])
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({**content, **top}))
    return path


@pytest.mark.parametrize("name", known_hardware())
def test_every_file_is_complete_and_says_where_each_constant_comes_from(name):
    hardware = load_hardware(name)
    assert hardware.name == name and hardware.description
    assert set(REQUIRED) <= set(hardware.constants) <= {*REQUIRED, *OPTIONAL}
    for key, constant in hardware.constants.items():
        assert len(constant.source) > 8, key
        assert constant.si == constant.value * UNITS[constant.unit]


def test_the_published_constants_in_si_units():
    a2, a3 = load_hardware("a2_910b_376t"), load_hardware("a3_910c")
    assert a2.operations_per_s("bf16") == 353.9e12 and a2.operations_per_s("int8") == 752e12
    assert load_hardware("a2_910b_313t").operations_per_s("bf16") == 294.9e12
    assert load_hardware("a2_910b_280t").operations_per_s("int8") == 560e12
    assert a2.si("memory.capacity") == 64 * 2**30
    assert a2.si("memory.bandwidth") == 1.6 * 2**40
    assert a2.ideal().link(LinkClass.INTRA_NODE).bytes_per_s == 196e9
    assert a2.ideal().link(LinkClass.INTER_NODE).bytes_per_s == 25e9
    assert a2.link(LinkClass.INTER_NODE).bytes_per_s == pytest.approx(0.7 * 25e9)
    assert a3.ideal().link(LinkClass.SAME_CARD).bytes_per_s == 224e9
    assert a3.si("link.inter_node.latency") == pytest.approx(5.5e-6)
    assert load_hardware("cm384_910c").si("link.inter_node.latency") == pytest.approx(1.5e-6)
    assert a2.si("chip.ub") == 192 * 1024 and a2.si("chip.l2") == 192 * 2**20
    assert 1e-6 <= a2.si("collective.post") <= 2e-6


def test_a_file_may_change_a_few_constants_of_another(tmp_path):
    path = tmp_path / "mine.yaml"
    own = {"link.inter_node.bandwidth": {"value": 50, "unit": "GB/s", "source": "two ports a card"}}
    path.write_text(yaml.safe_dump({"base": "a2_910b_376t", "constants": own}))
    mine = load_hardware(path)
    assert mine.name == "mine"
    assert mine.ideal().link(LinkClass.INTER_NODE).bytes_per_s == 50e9
    assert mine.si("memory.capacity") == 64 * 2**30
    path.write_text(yaml.safe_dump({"base": str(path), "constants": own}))
    with pytest.raises(ConfigError, match="base leads back to this file"):
        load_hardware(path)


def _set(key, **fields):
    def change(constants):
        constants[key] = {**constants.get(key, {}), **fields}

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("collective.post"), "lacks collective.post"),
        (_set("colective.post", value=1, unit="us", source="x"), "did you mean collective.post"),
        (_set("collective.post", value="1.5"), "value must be a number, got '1.5'"),
        (_set("collective.post", value=True), "value must be a number, got True"),
        (_set("collective.post", value=-1), "-1 us is not finite and not negative"),
        (_set("collective.post", value=float("nan")), "nan us is not finite"),
        (_set("collective.post", source=" "), "source is empty"),
        (_set("collective.post", unit="ms"), "unit 'ms' is not one of us, s"),
        (_set("collective.post", comment="x"), "expected exactly value, unit and source"),
        (_set("memory.bandwidth", value=0), "and above 0"),
        (_set("memory.bandwidth", value=float("inf")), "inf TiB/s is not finite"),
        (_set("compute.efficiency", value=1.1), "1.1 ratio is not from 0 to 1"),
        (_set("link.inter_node.efficiency", value=0), "and above 0"),
        (_set("link.shared_port", value=0.5), "0.5 flag is not 0 or 1"),
    ],
)
def test_a_bad_constant_is_named(tmp_path, change, message):
    with pytest.raises(ConfigError) as error:
        load_hardware(_write(tmp_path, change))
    assert message in str(error.value)


def test_bad_files_and_names(tmp_path):
    with pytest.raises(ConfigError, match="did you mean a3_910c.*known names: .*a2_910b_376t"):
        load_hardware("a3_910")
    broken = tmp_path / "broken.yaml"
    broken.write_text("constants: [")
    with pytest.raises(ConfigError, match="not YAML"):
        load_hardware(broken)
    broken.write_text("constants: 3")
    with pytest.raises(ConfigError, match="expected the keys description and constants"):
        load_hardware(broken)
    with pytest.raises(ConfigError, match="unknown key 'extra'; accepted: description, base"):
        load_hardware(_write(tmp_path, extra=1))


def test_a_constant_that_is_not_given_is_an_error_where_it_is_needed():
    with pytest.raises(ConfigError, match="a2_910b_376t has no constant 'link.same_card"):
        load_hardware("a2_910b_376t").link(LinkClass.SAME_CARD)


def test_other_values_keep_their_unit_and_say_their_source():
    a2 = load_hardware("a2_910b_376t")
    doubled = a2.with_values({"link.inter_node.bandwidth": 50}, "what if")
    constant = doubled.constants["link.inter_node.bandwidth"]
    assert (constant.value, constant.unit, constant.source) == (50, "GB/s", "what if")
    assert a2.constants["link.inter_node.bandwidth"].value == 25
    with pytest.raises(ConfigError, match="no constant 'link.inter.bandwidth'; did you mean"):
        a2.with_values({"link.inter.bandwidth": 50}, "typo")
