"""The committed table and page against what the compiler says today; rules for every kernel."""

from __future__ import annotations

import json
from importlib import import_module

import pytest

from sglang_ascend.kernel_proof import memory_table, page
from sglang_ascend.kernel_proof.planned_memory import LIMIT_BYTES
from sglang_ascend.kernel_proof.tolerances import TABLE
from sglang_ascend.kernels.launching import row_name
from sglang_ascend.kernels.registry import load_all
from sglang_ascend.ops import OPERATOR_MODULES

SPECS = load_all()
HINT = "run `python -m sglang_ascend.kernel_check --write`"


@pytest.fixture(scope="module")
def checked():
    """Rows and failures of every kernel, configuration and chip, compiled now."""
    return memory_table.rows_of(SPECS.values())


def test_every_configuration_passes_on_every_chip(checked):
    rows, failures = checked
    assert failures == []
    assert set(rows) == {
        row_name(spec, config, target)
        for spec in SPECS.values()
        for config in spec.configs
        for target in config.targets
    }


def test_no_configuration_is_above_a_limit(checked):
    for name, row in checked[0].items():
        assert row["ub_bytes"] <= LIMIT_BYTES["ub"], name
        assert row["l1_bytes"] <= LIMIT_BYTES["cbuf"], name
        assert row["l0c_bytes"] <= LIMIT_BYTES["cc"], name
        assert row["ub_bytes"] > 0, name


def test_the_committed_table_is_up_to_date(checked):
    assert json.loads(memory_table.committed()) == json.loads(memory_table.document(checked[0])), (
        HINT
    )


def test_the_page_is_up_to_date(checked):
    assert page.PAGE.read_text() == page.text(SPECS.values(), checked[0]), HINT


@pytest.mark.parametrize("name", SPECS)
def test_a_kernel_names_a_reference_and_has_a_tolerance_for_each_dtype(name):
    spec = SPECS[name]
    if ":" in spec.reference:
        module, function = spec.reference.split(":")
        assert callable(getattr(import_module(module), function))
    else:
        assert spec.reference in OPERATOR_MODULES
    for config in spec.configs:
        assert TABLE[name, config.dtype].reason


@pytest.mark.parametrize("name", SPECS)
def test_a_kernel_has_a_roofline(name):
    assert SPECS[name].work
    assert all(work.moved_bytes > 0 for work in SPECS[name].work)
