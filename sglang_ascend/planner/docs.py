"""The generated parts of ``docs/planner.md``: tables between markers, and pictures beside it."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

from sglang_ascend.deploy import deployment_file
from sglang_ascend.planner import ablations, constants, evaluate, pictures, published, sensitivity
from sglang_ascend.planner.predict import predict
from sglang_ascend.planner.workload import read as read_workload

_ROOT = Path(__file__).resolve().parents[2]
PAGE = _ROOT / "docs" / "planner.md"
CALIBRATION = _ROOT / "benchmark" / "results" / "planner_calibration.json"
_STYLE = (
    "<style>svg{--ink:#1c2530;--faint:#dde2e8;font-family:system-ui,sans-serif;background:#fff}"
    "</style>"
)


def tables() -> dict[str, str]:
    """Generated text by the name of its marker."""
    return {
        "constants": constants_table(),
        "leave-one-out": leave_one_out_table(),
        "held-out": held_out_table(),
        "ablations": ablations_table(),
        "calibration": calibration_table(),
    }


def files() -> dict[str, str]:
    """Generated pictures by file name, beside the page."""
    deployment = deployment_file.read("a2_pd_48")
    load = read_workload("chat_2k_2k")
    found = predict(deployment, load)
    wide = deployment_file.read("cm384_pd_256")
    other = predict(wide, load)
    decode = {name: p.roles["decode"].step for name, p in (("a2", found), ("cm384", other))}
    drawn = {
        "planner_waterfall_a2_decode.svg": pictures.waterfall(decode["a2"]),
        "planner_layer_a2_decode.svg": pictures.time_line(decode["a2"].layers["moe"][0]),
        "planner_layer_cm384_decode.svg": pictures.time_line(decode["cm384"].layers["moe"][0]),
        "planner_tornado_a2.svg": pictures.tornado(
            sensitivity.tornado(deployment, load)[:12], "change of requests/s"
        ),
    }
    return {name: _standalone(svg) for name, svg in drawn.items()}


def _standalone(svg: str) -> str:
    """A picture that carries its colours, for pages that show it as an image."""
    head, rest = svg.split(">", 1)
    return f"{head}>{_STYLE}{rest}\n"


def rendered(text: str) -> str:
    """The page with its generated tables in place."""
    for name, table in tables().items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"{PAGE.name} has no marker {begin}")
        text = pattern.sub(lambda _, t=table: f"{begin}\n{t}\n{end}", text)  # noqa: B023
    return text


def write() -> None:
    """Bring the page and its pictures up to date."""
    PAGE.write_text(rendered(PAGE.read_text()))
    for name, content in files().items():
        (PAGE.parent / name).write_text(content)


def constants_table() -> str:
    rows = ["| constant | value | unit | source |", "|---|---|---|---|"]
    for name, constant in constants.table().items():
        label = name.replace("_", " ")
        rows.append(f"| {label} | {constant.value:g} | {constant.unit} | {constant.source} |")
    return "\n".join(rows)


def leave_one_out_table() -> str:
    content = evaluate.read()
    family = {row["point"]: row for row in content["leave_family_out"]}
    points = {point.name: point for point in published.points()}
    rows = [
        "| point | published | without it | error | error with it | error without its family |",
        "|---|---|---|---|---|---|",
    ]
    for row in content["leave_one_out"]:
        point = points[row["point"]]
        rows.append(
            f"| {point.name}: {point.source} | {row['published']:g} | {row['predicted']:.0f} | "
            f"{row['error']:+.1%} | {row['fitted_error']:+.1%} | "
            f"{family[point.name]['error']:+.1%} |"
        )
    for name, key in (("one point", "leave_one_out"), ("a family", "leave_family_out")):
        median, worst = evaluate.summary(content[key])
        rows += ["", f"Leaving out {name}: median error {median:.1%}, worst {worst:.1%}."]
    return "\n".join(rows)


def held_out_table() -> str:
    points = {point.name: point for point in published.points(published.HELD_OUT)}
    rows = ["| point | published | predicted | error | filled in |", "|---|---|---|---|---|"]
    found = evaluate.held_out()
    for row in found:
        point = points[row["point"]]
        rows.append(
            f"| {point.source} | {row['published']:g} | {row['predicted']:.0f} | "
            f"{row['error']:+.1%} | {point.assumed} |"
        )
    median, worst = evaluate.summary(found)
    return "\n".join([*rows, "", f"Median error {median:.1%}, worst {worst:.1%}."])


def ablations_table() -> str:
    rows = ["| what | report | model | why |", "|---|---|---|---|"]
    rows += [f"| {a.name} | {a.reported} | {a.model} | {a.why} |" for a in ablations.run()]
    return "\n".join(rows)


def calibration_table() -> str:
    """Of the results of ``benchmark.planner_calibration``."""
    content = json.loads(CALIBRATION.read_text())
    rows = [
        "| model | format | requests | figure | predicted | measured | ratio - 1 |",
        "|---|---|---|---|---|---|---|",
    ]
    figures = (
        ("TTFT ms", "ttft_s", 1e3),
        ("TPOT ms", "tpot_s", 1e3),
        ("tokens/s", "tokens_per_s", 1),
    )
    errors = []
    for cell in content["cells"]:
        where = f"{cell['model']} | {cell['format']} | {cell['requests']}"
        for label, name, unit in figures:
            predicted, measured = (cell[side][name] * unit for side in ("predicted", "measured"))
            errors.append(cell["ratio"][name] - 1)
            rows.append(
                f"| {where} | {label} | {predicted:.1f} | {measured:.1f} | {errors[-1]:+.1%} |"
            )
    size = sorted(map(abs, errors))
    near = sum(error <= 0.2 for error in size)
    machine = content["machine"]
    rows += [
        "",
        f"{machine['processor']}, {machine['cores']} cores, {content['rounds']} round(s): {near} "
        f"of {len(size)} figures within 20 %, median error {statistics.median(size):.1%}, worst "
        f"{size[-1]:.1%}.",
    ]
    return "\n".join(rows)
