"""The contract holds, every wrong call is refused, every call site is reached."""

from __future__ import annotations

from collections import Counter

import pytest

from sglang_ascend.contract import cases, check, deployment_steps, record
from sglang_ascend.ops import OPERATOR_MODULES

#: Operators that DeepSeek-V3 does not call, calls inside others, or (the last two) that pack the
#: windows of a transport of our own.
NOT_COMPUTED = {
    "gate_topk_softmax",
    "kv_write",
    "murmur_hash32",
    "paged_gqa_attention",
    "dispatch_pack",
    "dispatch_unpack",
}


def test_the_contract_holds(report):
    assert report.problems == []


def test_every_operator_on_both_chips(report):
    assert report.socs == ("910B", "910C")
    for soc in report.socs:
        checked = {result["operator"] for result in report.results[soc]}
        assert checked == {*OPERATOR_MODULES, "npu_format.to_fractal_nz"}
        assert len(report.results[soc]) == len(cases.load()) + 1


def test_recorded_and_computed_shapes_are_there():
    by_origin = Counter(case.origin for case in cases.load())
    assert by_origin["recorded"] > 80 and by_origin["computed"] > 100
    assert sorted(path.stem for path in cases.RECORDED.glob("*.json")) == sorted(record.MODELS)


def test_every_operator_of_deepseek_v3_has_computed_shapes():
    computed = {case.operator for case in cases.load() if case.origin == "computed"}
    assert computed == set(OPERATOR_MODULES) - NOT_COMPUTED


def test_the_computed_steps_are_those_of_the_deployments():
    sizes = {step.label.partition(", ")[2]: step for step in deployment_steps.STEPS}
    assert sizes["A2 decode EP 32, 64 requests x 1"].gathered == 32 * 64
    assert sizes["A2 decode EP 32, 81 requests x 1"].experts == 8
    assert sizes["A2 prefill on 16 cards, 8 x 2K"].tokens == 16384
    cloudmatrix = sizes["CloudMatrix decode EP 320, 96 requests x 1"]
    assert cloudmatrix.ep.group.size == 320 and cloudmatrix.ep.local_slots == 1
    assert len({case.label for case in cases.load() if case.origin == "computed"}) > 60


def test_results_of_a_computed_call(report):
    """One by hand: absorbed attention of 81 requests, 128 heads, latents of 512."""
    label = "DeepSeek-V3, A2 decode EP 32, 81 requests x 1"
    for soc in report.socs:
        (found,) = (
            result["outputs"]
            for result in report.results[soc]
            if (result["operator"], result["label"]) == ("paged_mla_attention", label)
        )
        assert found == [
            {
                "shape": [81, 128, 512],
                "dtype": "bfloat16",
                "stride": [65536, 512, 1],
                "shares": None,
            }
        ]


@pytest.mark.parametrize("soc", check.SOCS)
def test_every_wrong_call_is_refused(report, soc):
    rows = report.refusals[soc]
    assert {row["operator"] for row in rows} == set(OPERATOR_MODULES)
    assert [row for row in rows if not row["specification"] and row["npu"] is None] == []
    mistakes = {row["mistake"] for row in rows}
    assert {
        "unknown argument",
        "x: one axis more",
        "x: dtype int8",
        "weights: axis in one longer than elsewhere",
        "latent_cache: strides with gaps",
        "query_lens: one entry more",
        "rank as large as the world",
        "token_counts: one entry more",
    } <= mistakes


def test_what_torch_npu_does_not_see_is_refused_before_the_call(report):
    """On the NPU path alone, without SGLANG_ASCEND_CHECK_OPS."""
    for soc in report.socs:
        own = {
            row["mistake"]
            for row in report.refusals[soc]
            if row["npu"] == "the operator's own check"
        }
        assert {"rank as large as the world", "latent_cache: strides with gaps"} <= own


def test_every_call_site_is_reached(report):
    operators = [site for site in report.sites if site.kind == "operator"]
    assert len(operators) > 20
    assert [site for site in report.sites if site.kind == "hidden"] == []
    assert not list(check.not_under_contract(report))
    # A call that no case makes is noticed.
    site = operators[0]
    for results in report.results.values():
        for result in results:
            result["calls"] = [
                call for call in result["calls"] if call != [site.name, site.file, site.line]
            ]
    (missing,) = check.not_under_contract(report)
    assert missing == f"{site}: not under contract; add a case that reaches this call"
