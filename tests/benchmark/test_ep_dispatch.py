"""The benchmark runs real ranks, adds up, and says what it lacks."""

from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as ET

import pytest

from benchmark import ep_dispatch, netns
from benchmark import ep_dispatch_report as report
from sglang_ascend.comm.topology import Topology


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two ranks, two cells, no limits on the links."""
    out = tmp_path_factory.mktemp("ep_dispatch")
    arguments = "--loopback --ranks 2 --nodes 2 --tokens 3 --top-k 2 --slots 8 --repeats 2"
    assert ep_dispatch.main([*arguments.split(), "--out", str(out)]) == 0
    return json.loads((out / "ep_dispatch.json").read_text()), (out / "ep_dispatch.svg").read_text()


def test_every_cell_has_times_bytes_and_a_choice(results):
    content, _ = results
    assert [cell["routing"] for cell in content["cells"]] == ["balanced", "skewed"]
    for cell in content["cells"]:
        assert {name: len(times) for name, times in cell["times_s"].items()} == {
            "allgather": 2,
            "dispatch": 2,
        }
        assert cell["choice"] == min(cell["predicted_s"], key=cell["predicted_s"].get)
        assert cell["reason"].startswith(f"{cell['choice']}: ")
        # 3 tokens of 1 KiB with 2 ids and weights there, 1 KiB back, on each of two ranks.
        sent = 2 * 3 * (1024 + 2 * 8 + 1024)
        assert cell["bytes"]["allgather"] == {"inter_node": sent}
        assert cell["predicted_bytes"]["allgather"] == {"inter_node": sent}
        rows = (cell["bytes"]["dispatch"]["inter_node"] - 2 * 4 * 4) / 2048
        assert rows == int(rows) and 0 <= rows <= 12
    assert content["calibrations"][0]["constants"]["collective.fixed"] > 0
    assert content["summary"]["cells"] == 2


def test_the_picture_is_whole_and_separates_measured_from_predicted(results):
    content, picture = results
    texts = [text.text for text in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert "Measured: 2 node(s), top-2 (loopback, no limits)" in texts
    assert sum(text.startswith("Predicted, not measured: ") for text in texts) == 2
    shown = [text for text in texts if text.endswith((" A", " D"))]
    assert len(shown) == 2 + len(content["large_scale_predicted"])


def test_the_large_scale_claim_is_in_the_output(results):
    for row in results[0]["large_scale_predicted"]:
        if row["tokens"] >= 4:
            expected = "allgather" if row["hardware"] == "a2_910b_376t" else "dispatch"
            assert row["choice"] == expected, row


def _cell(choice, allgather, dispatch):
    times = {"allgather": allgather, "dispatch": dispatch}
    return {"choice": choice, "median_s": times, "predicted_s": times, "choose_s": 0.0}


def test_summary_measures_auto_against_the_better_transport():
    cells = [_cell("allgather", 1.0, 2.0), _cell("dispatch", 1.04, 1.0), _cell("dispatch", 1, 1.2)]
    summary = report.summary(cells)
    assert summary["auto_within_5_percent"] == pytest.approx(2 / 3)
    assert summary["auto_worst"] == pytest.approx(0.2)
    assert summary["always_dispatch_worst"] == pytest.approx(1.0)
    assert summary["always_allgather_worst"] == pytest.approx(0.04)
    assert summary["prediction_error_median"] == 0


def test_links_are_made_and_removed_or_what_is_missing_is_said(monkeypatch, capsys):
    lack = netns.missing()
    if lack is None:
        with netns.Cluster(Topology(2, 1), 1e6, 1e5) as cluster:
            name = cluster.command(1)[-1]
            shaped = subprocess.run(
                [*cluster.command(1), "tc", "class", "show", "dev", netns.INTERFACE],
                capture_output=True, text=True, timeout=30,
            ).stdout  # fmt: skip
            assert "rate 800Kbit ceil 800Kbit" in shaped  # the port between nodes: 1e5 B/s
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=30)
        assert name not in listed.stdout
        monkeypatch.setenv("PATH", "")
        lack = netns.missing()
        assert lack == "the command ip (Debian package iproute2)"
    assert ep_dispatch.main(["--tokens", "1"]) == 2
    said = capsys.readouterr().err
    assert lack in said and "--loopback" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--nodes 3", "--ranks 4 does not divide over 3 nodes"),
        ("--top-k 2,64", "--slots 32 must be a multiple of --ranks 4 and at least the greatest"),
        ("--routing even", "--routing 'even'; accepted: balanced, skewed"),
        ("--tokens 0", "--tokens takes numbers from 1"),
        ("--inter-mb-s 0", "--inter-mb-s must be above 0"),
        ("--repeats 0", "--repeats is 0; it is at least 1"),
    ],
)
def test_bad_arguments_are_one_line(arguments, message, capsys):
    assert ep_dispatch.main(arguments.split()) == 2
    assert message in capsys.readouterr().err


def test_a_rank_that_fails_is_named_with_its_last_words(tmp_path, capsys):
    arguments = ["--loopback", "--ranks", "2", "--nodes", "1", "--tokens", "1", "--top-k", "2"]
    broken = ["--hot-weight", "1e300", "--routing", "skewed", "--out", str(tmp_path)]
    assert ep_dispatch.main([*arguments, *broken]) == 2
    said = capsys.readouterr().err
    assert "ranks on 1 node(s) failed: rank 0 with 1: " in said and "without overflow" in said
    assert not list(tmp_path.iterdir())
