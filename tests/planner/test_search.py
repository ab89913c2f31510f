"""The search for a deployment, and what it says when there is none."""

from __future__ import annotations

import dataclasses

import pytest

from sglang_ascend.deploy import deployment_check, deployment_file
from sglang_ascend.deploy.deployment import Phase, Precision
from sglang_ascend.errors import ConfigError
from sglang_ascend.planner import batch, search
from sglang_ascend.planner.predict import predict
from sglang_ascend.planner.search import Question
from sglang_ascend.planner.workload import Workload

WORK = Workload(name="test", input_tokens=2048, output_tokens=1024, tpot_ms=50)
DENSE = Question("a2_910b_280t", 8, WORK, "qwen3-32b", Precision(), most_drafts=0)


@pytest.fixture(scope="module")
def deepseek():
    seen: list[tuple[int, int]] = []
    question = Question("cm384_910c", 64, WORK, most_drafts=1)
    return question, search.search(question, lambda done, of: seen.append((done, of))), seen


def test_the_answer_meets_the_limit_and_fits(deepseek):
    question, answer, _ = deepseek
    found = answer.deployment
    assert found.cards <= question.cards
    deployment_check.check(found)
    predicted = predict(found, WORK)
    assert predicted.roles[Phase.DECODE].tpot_s <= 0.05
    assert predicted.output_tokens_per_s_card == pytest.approx(answer.output_per_card, rel=1e-6)


def test_the_answer_survives_its_file(deepseek, tmp_path):
    _, answer, _ = deepseek
    path = tmp_path / "found.yaml"
    path.write_text(deployment_file.dump(answer.deployment))
    assert deployment_file.read(path) == answer.deployment


def test_no_point_of_the_front_is_beaten(deepseek):
    _, answer, _ = deepseek
    for a in answer.front:
        assert not any(b.tpot_s < a.tpot_s and b.per_card >= a.per_card for b in answer.front)
    assert len(answer.front) > 2


def test_progress_runs_from_start_to_end(deepseek):
    seen = deepseek[2]
    shares = [done / of for done, of in seen]
    assert shares == sorted(shares) and shares[-1] == 1


def test_the_same_question_has_the_same_answer():
    assert search.search(DENSE) == search.search(DENSE)


def test_a_looser_limit_is_no_worse():
    values = [
        search.search(dataclasses.replace(DENSE, workload=dataclasses.replace(WORK, tpot_ms=ms)))
        for ms in (40, 80)
    ]
    assert values[0].output_per_card <= values[1].output_per_card * (1 + 1e-9)


def test_a_limit_that_nothing_meets_names_the_nearest():
    tight = dataclasses.replace(DENSE, workload=dataclasses.replace(WORK, tpot_ms=1))
    with pytest.raises(ConfigError, match=r"meets a TPOT of 1 ms; the fastest reaches") as refused:
        search.search(tight)
    nearest = float(str(refused.value).split("reaches ")[1].split(" ms")[0])
    loose = dataclasses.replace(WORK, tpot_ms=nearest * 1.05)
    search.search(dataclasses.replace(DENSE, workload=loose))


def test_too_few_cards_say_how_many_are_needed():
    with pytest.raises(ConfigError, match="does not fit into 4 a2_910b_280t cards") as refused:
        search.search(Question("a2_910b_280t", 4, WORK, most_drafts=0))
    needed = int(str(refused.value).split(": give ")[1].split()[0])
    assert needed % 8 == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hardware": "a3_910d"}, "did you mean a3_910c"),
        ({"model": "qwen3-33b"}, "nearest: qwen3-32b"),
        ({"precision": Precision("fp8", "fp8")}, "has no fp8 matrix multiplication"),
        ({"cards": 0}, "--cards 0"),
        ({"workload": dataclasses.replace(WORK, tpot_ms=None)}, "give --tpot-ms"),
    ],
)
def test_bad_questions_are_refused_with_what_is_possible(change, message):
    with pytest.raises(ConfigError, match=message):
        search.search(dataclasses.replace(DENSE, **change))


def test_largest_batch_is_the_last_that_fits():
    for limit in (0.011, 0.05, 0.2, 1.0):
        found = batch.largest(lambda n: 0.01 + 0.002 * n, limit, 400)
        assert found == pytest.approx(min(400, (limit - 0.01) / 0.002), rel=1e-3)
    assert batch.largest(lambda n: 0.5, 0.1) == 0.0
