"""The judge: what it shows, what it refuses, and what it keeps to itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ssmlbench.core.errors import RunFailed
from ssmlbench.core.remarks import MORE, MOST
from ssmlbench.core.spec import RunSpec
from ssmlbench.protocol.judge import Judge, checked_scores

RANDOM = np.random.default_rng(3)
TRUTH = (RANDOM.random((40, 3)) < 0.4).astype(np.int8)
TEST_TRUTH = (RANDOM.random((10, 3)) < 0.4).astype(np.int8)


def judge_of(**changes: Any) -> Judge:
    return Judge.of(RunSpec("some", "toy", "semi", **{"pi": 0.5, **changes}), TRUTH, TEST_TRUTH)


def test_what_training_may_know_is_a_copy() -> None:
    judge = judge_of()
    seen, before = judge.visible(), judge.observation.digest
    for array in (seen.labels, seen.labelled, seen.unlabelled, seen.prior):
        array[:] = 0
    assert judge.observation.digest == before
    assert judge.observation.prior.any()


@pytest.mark.parametrize("changes", [{"selection": "val"}, {"judged_on": "held-out"}])
def test_held_out_labels_stay_with_the_judge(changes: dict[str, str]) -> None:
    judge = judge_of(**changes)
    rows = judge.visible().validation
    assert len(rows)
    assert (judge.visible().labels[rows] == -1).all()
    assert (judge.observation.labels[rows] == TRUTH[rows]).all()


@pytest.mark.parametrize(
    "bad",
    [np.nan, np.inf, -np.inf, -1e-3, 1.001, 7.0],
    ids=["nan", "inf", "minus inf", "below", "above", "far above"],
)
def test_scores_outside_the_unit_interval_are_refused_with_the_methods_name(bad: float) -> None:
    judge = judge_of(epochs=1)
    sound, broken = np.full((40, 3), 0.5), np.full((10, 3), 0.5)
    broken[4, 1] = bad
    with pytest.raises(RunFailed, match=r"scores of some are not all numbers in \[0, 1\]"):
        judge.hand_in(1, sound, broken)
    with pytest.raises(RunFailed, match="scores of some"):
        judge.hand_in(1, np.vstack([sound[:30], broken]), sound[:10])


@pytest.mark.parametrize(
    "scores", [np.zeros((9, 3)), np.zeros(30), None, [["a"] * 3] * 10, np.full((10, 3), 0.5j)]
)
def test_what_is_no_matrix_of_the_right_shape_is_refused(scores: Any) -> None:
    with pytest.raises(RunFailed, match="scores of some"):
        checked_scores(scores, (10, 3), "some")


@pytest.mark.parametrize("selection", ["last", "val", "oracle"])
def test_the_judge_selects_the_epoch_whose_scores_it_takes(selection: str) -> None:
    judge = judge_of(selection=selection, epochs=3)
    scores = (np.full((len(judge.observation.labels), 3), 0.5), np.full((10, 3), 0.5))
    kept = np.concatenate([judge.observation.labelled, judge.observation.unlabelled])
    train = scores[0][kept]
    best = 3
    if selection != "last":
        rows = judge.observation.validation if selection == "val" else range(10)
        assert judge.is_best(1, np.full((len(rows), 3), 0.5))
        with pytest.raises(RunFailed, match="handed in no scores of its best epoch"):
            judge.check_complete()
        best = 1
    with pytest.raises(RunFailed, match=f"epoch 2; expected those of epoch {best}"):
        judge.hand_in(2, train, scores[1])
    judge.hand_in(best, train, scores[1])
    judge.check_complete()
    assert judge.judgements.selected_epoch == best
    for epoch in (0, 4):
        with pytest.raises(RunFailed, match=f"epoch {epoch}; there is none"):
            judge.grade(epoch, np.ones((20, 3), bool), np.ones((20, 3), bool))


def test_training_learns_one_bit_an_epoch_of_the_selected_epoch() -> None:
    judge = judge_of(selection="oracle")
    answers = [judge.is_best(epoch, np.full((10, 3), 0.5)) for epoch in (1, 2)]
    assert answers == [True, False]
    assert judge.grade(1, np.ones((20, 3), bool), np.ones((20, 3), bool)) is None
    assert judge.judgements.by_epoch[1].keys() == {
        "oracle_map",
        "pseudo_precision",
        "pseudo_recall",
        "pseudo_trusted",
    }


@pytest.mark.parametrize("selection", ["last", "val", "oracle"])
def test_the_judge_answers_no_question_that_the_protocol_does_not_ask(selection: str) -> None:
    """Thousands of answers, one bit each, would tell every test label."""
    judge = judge_of(selection=selection, epochs=2)
    truth = judge.judged_truth if selection == "oracle" else judge.observation.validation
    scores = np.full((len(truth), 3), 0.5)
    for epoch in (0, -1, 3, 10**6) if selection != "last" else (1, 2):
        with pytest.raises(
            RunFailed,
            match=f"asked the judge about epoch {epoch}; the protocol has no such question",
        ):
            judge.is_best(epoch, scores)
    assert not judge.judgements.by_epoch


def test_a_remark_is_kept_once_and_of_very_many_the_first() -> None:
    judge = judge_of()
    for program in ["g++", "g++", "openssl", "g++"]:
        judge.note(f"some started {program}")
    assert judge.notes == ["some started g++", "some started openssl"]
    for number in range(10_000):
        judge.note(f"some started {number} {'x' * 100_000 if number < 3 else ''}")
    assert len(judge.notes) == MOST + 1
    assert judge.notes[-1] == MORE
    assert max(map(len, judge.notes)) < 5_000
