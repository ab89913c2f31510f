"""Every seam lands on the object in use, in every kind of process of a running server."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest

from sglang_ascend.plugin import ledger
from sglang_ascend.seam import PROCESS_KINDS


@pytest.fixture(scope="module")
def reports(ep2_server, ledger_folder):
    """Statuses by process kind, as each process of one server wrote them itself."""
    body = {"text": "In the beginning", "sampling_params": {"max_new_tokens": 4}}
    assert len(ep2_server.generate(body)["output_ids"]) == 4
    by_kind = defaultdict(list)
    for path in ledger_folder.glob("*.json"):
        by_kind[path.name.rsplit("-", 1)[0]].append(
            {row["seam"]: row["status"] for row in json.loads(path.read_text())}
        )
    return by_kind


@pytest.mark.parametrize("kind", PROCESS_KINDS)
def test_every_needed_seam_is_applied(reports, kind):
    needed = {seam.name for seam in ledger.needed(kind, "reference")}
    assert reports[kind], f"no {kind} process reported"
    for statuses in reports[kind]:
        applied = {name for name, status in statuses.items() if status == "applied"}
        assert applied == needed
        assert "FAILED" not in statuses.values()


def test_all_ranks_and_workers_reported(reports):
    assert len(reports["scheduler"]) == 2
    assert len(reports["tokenizer_worker"]) == 2


def test_seam_names_are_unique_and_records_complete():
    names = [seam.name for seam in ledger.ALL_SEAMS]
    assert len(set(names)) == len(names)
    for seam in ledger.ALL_SEAMS:
        assert seam.symptom and seam.why_safe and seam.upstream and seam.remove_when
        assert seam.processes and set(seam.processes) <= set(PROCESS_KINDS)


def test_a_hook_that_does_not_land_is_reported_as_failed():
    """Nothing is hooked in this process, so a needed seam must come out as FAILED."""
    seam = next(iter(ledger.needed("scheduler", "reference")))
    status = {row.seam: row for row in ledger.statuses("scheduler", "reference")}[seam.name]
    assert status.status == "FAILED" and seam.target in status.detail
