"""recommend: learners compared by folds within a budget, the winner trained on everything."""

from __future__ import annotations

import math
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.metrics import average_precision_score, f1_score

from ssmlbench.cli.options import seconds
from ssmlbench.core.errors import UserError
from ssmlbench.core.events import EpochEnded, Failed
from ssmlbench.grid.judged_learner import (
    JudgedLearner,
    fold_difference,
    labels_with_positives,
    map_of_all,
    micro_f1_of_all,
    on_one_scale,
)
from ssmlbench.grid.recommend import LearnerSearch, Recommended, TimeBudget
from ssmlbench.protocol.decisions import calibrated_thresholds
from ssmlbench.runs.finished import Finished, read_finished
from ssmlbench.runs.scores import StoredScores

DATA = '''
import numpy as np
from ssmlbench.api import DatasetAdapter, Row

WORDS = ("apple pear fruit", "car wheel road", "wind rain cloud")


class Topics(DatasetAdapter):
    """Texts of three topics, most of them without labels."""

    name = "topics"
    kind = "text"
    backbone = "bert-base-uncased"

    def label_names(self):
        return ["food", "traffic", "weather"]

    def splits(self):
        return ("train",)

    def rows(self, split):
        random = np.random.default_rng(0)
        for i in range(90):
            labels = tuple(int(k) for k in np.flatnonzero(random.random(3) < 0.5))
            words = [*" ".join(WORDS[k] for k in labels).split(), "word", f"number{i % 7}"]
            yield Row(" ".join(random.permutation(words)), labels if i < 40 else None, id=f"text {i}")
'''


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "topics.py"
    file.write_text(DATA)
    return file


@pytest.mark.parametrize("name", ["labels.xls", "nowhere/labels.csv"])
def test_a_file_that_cannot_be_written_is_refused_before_the_search(
    ssmlbench: Any, plugin: Path, name: str
) -> None:
    said = ssmlbench("recommend", "--dataset", "topics", "--plugin", plugin, "--out", name)
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.startswith(f"error: --out {name}: ")


def test_a_file_of_the_user_is_not_taken_for_labels_of_an_earlier_command(
    ssmlbench: Any, plugin: Path
) -> None:
    own = plugin.parent / "topics-labels.csv"
    own.write_text("id,labels\n1,a\n")
    said = ssmlbench("recommend", "--dataset", "topics", "--plugin", plugin)
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.startswith("error: topics-labels.csv is there, and this command did not")
    assert own.read_text() == "id,labels\n1,a\n"
    own.write_text("id,labels,rule,p(a)\n1,a,calibrated,0.9\n")
    said = ssmlbench("recommend", "--dataset", "topics", "--plugin", plugin, "--jobs", "0")
    assert "--jobs 0" in said.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [("30m", 1800), ("2h", 7200), ("90s", 90), ("1h30m", 5400), (" 5m ", 300), ("1.5h", 5400)],
)
def test_a_budget_is_a_time(text: str, expected: float) -> None:
    assert seconds(text, "--budget") == expected


@pytest.mark.parametrize(
    "text", ["", "soon", "0s", "m30", "-5m", "30m2h", "5 minutes", "9000h", "9" * 400]
)
def test_what_is_no_time_is_one_line(text: str) -> None:
    with pytest.raises(
        UserError, match=r"expected a time above zero, at most a year, e\.g\. --budget 90s"
    ):
        seconds(text, "--budget")


def test_a_difference_has_an_interval_that_knows_of_shared_training_rows() -> None:
    from scipy import stats

    ours, theirs = (0.5, 0.6, 0.7, 0.65), (0.45, 0.5, 0.68, 0.6)
    found = fold_difference(judged(ours, 4), judged(theirs, 4))
    each = np.subtract(ours, theirs)
    # Nadeau and Bengio: 1 / k + (test rows) / (training rows) of the variance, here 1 / 4 + 1 / 3.
    scale = each.std(ddof=1) * np.sqrt(1 / 4 + 1 / 3)
    assert found.interval == pytest.approx(stats.t.interval(0.95, 3, loc=each.mean(), scale=scale))
    assert found.mean == pytest.approx(each.mean())
    assert not found.clear
    # Two of four folds: each was trained on three quarters of the rows all the same.
    found = fold_difference(judged(ours[:2], 4), judged(theirs[:2], 4))
    scale = each[:2].std(ddof=1) * np.sqrt(1 / 2 + 1 / 3)
    assert found.interval == pytest.approx(stats.t.interval(0.95, 1, each[:2].mean(), scale))


def judged(values: tuple[float, ...], folds: int) -> JudgedLearner:
    return JudgedLearner("a", "", (), folds, values, values)


def test_folds_without_a_positive_do_not_count() -> None:
    nan = float("nan")
    ours, theirs = judged((0.5, nan, 0.7, 0.9), 4), judged((0.4, nan, 0.5, 0.6), 4)
    assert ours.mean == pytest.approx(0.7)
    found = fold_difference(ours, theirs)
    assert found.mean == pytest.approx(0.2)
    assert found.interval[0] < 0.2 < found.interval[1]
    found = fold_difference(judged((0.5, nan), 2), judged((0.4, nan), 2))
    assert (found.mean, found.clear) == (pytest.approx(0.1), False)
    thresholds = {"thresholds": np.full(2, 0.6)}
    empty = StoredScores(np.full((4, 2), 0.5), np.zeros((4, 2), dtype=bool), thresholds)
    assert np.isnan(map_of_all([empty], 5)[0])
    assert np.isnan(micro_f1_of_all([empty, empty], 5)[0])
    one = StoredScores(np.eye(4)[:, :2], np.eye(4)[:, :2] == 1, thresholds)
    one.truth[1:] = False  # one positive of one label
    assert map_of_all([one], 5)[0] == 1
    assert micro_f1_of_all([one, empty], 5) == (pytest.approx(2 / 3), (0.0, 1.0))


def test_the_interval_of_all_held_out_rows_holds_the_truth_and_narrows_with_rows() -> None:
    random = np.random.default_rng(0)

    def rows(count: int) -> StoredScores:
        truth = random.random((count, 6)) < 0.2
        return StoredScores(expit(truth + random.normal(0, 1, truth.shape)), truth)

    true = map_of_all([rows(40_000)], 5)[0]
    reaches = []
    for count in (50, 800):
        found = [map_of_all([rows(count), rows(count)], 5)[1] for _ in range(40)]
        assert sum(low <= true <= high for low, high in found) >= 34
        reaches.append(np.mean([high - low for low, high in found]))
    assert reaches[1] < reaches[0] / 2.5


def test_folds_whose_models_score_on_other_scales_are_ranked_as_one_set() -> None:
    random = np.random.default_rng(0)
    truth = random.random((5, 200, 8)) < 0.2
    logits = 2 * truth + random.normal(0, 1, truth.shape) - 2
    first = [StoredScores(expit(own), t) for own, t in zip(logits, truth, strict=True)]
    shift, scale = random.normal(0, 1.5, (5, 1, 8)), np.array([0.1, 0.5, 1, 2, 3])[:, None, None]
    other = [
        StoredScores(expit(own), t) for own, t in zip(logits * scale + shift, truth, strict=True)
    ]
    as_they_are = average_precision_score(
        truth.reshape(-1, 8), np.concatenate([fold.scores for fold in other])
    )
    one_model = average_precision_score(truth.reshape(-1, 8), logits.reshape(-1, 8))
    assert as_they_are < one_model - 0.15
    assert map_of_all(first, 5)[0] == pytest.approx(one_model, abs=0.01)
    assert map_of_all(other, 5)[0] == pytest.approx(one_model, abs=0.02)
    for before, after in zip(other, on_one_scale([f.scores for f in other]), strict=True):
        assert (np.argsort(before.scores, axis=0) == np.argsort(after, axis=0)).all()


def test_the_jackknife_tells_by_how_much_few_positives_are_too_high() -> None:
    truth = np.zeros((40, 1), dtype=bool)
    truth[[3, 17]] = True
    scores = np.random.default_rng(1).random((40, 1))
    rest = [np.arange(40) % 20 != block for block in range(20)]
    whole = average_precision_score(truth, scores)
    without = [average_precision_score(truth[kept], scores[kept]) for kept in rest]
    too_high = 19 * (np.mean(without) - whole)
    assert map_of_all([StoredScores(scores, truth)], 5)[0] == pytest.approx(whole - too_high / 2)


def test_scores_of_nought_and_one_and_constant_ones_have_a_scale_too() -> None:
    hard = np.array([[0, 1, 0.5], [1, 0, 0.5], [1, 1, 0.5], [0, 0, 0.5]])
    for fold in on_one_scale([hard, hard[::-1]]):
        assert np.isfinite(fold).all()
    same = np.full((3, 2), 0.25)
    assert all((fold == 0).all() for fold in on_one_scale([same, same + 0.5]))


def test_micro_f1_is_of_all_held_out_rows_and_its_variance_of_folds_and_rows() -> None:
    random = np.random.default_rng(0)
    truth = random.random((2, 30, 4)) < 0.3
    scores = (truth * 0.3 + random.random(truth.shape)).astype(np.float32)
    thresholds = np.array([0.6, 0.7, 0.8, 0.9], np.float32)
    folds = [
        StoredScores(s, t, {"thresholds": thresholds}) for s, t in zip(scores, truth, strict=True)
    ]
    chosen, true = (scores >= thresholds).reshape(-1, 4), truth.reshape(-1, 4)
    micro = partial(f1_score, average="micro")
    value, (low, high) = micro_f1_of_all(folds, 5)
    assert value == pytest.approx(micro(true, chosen))
    each = [micro(truth[fold], scores[fold] >= thresholds) for fold in (0, 1)]
    kept = [np.arange(60) % 20 != block for block in range(20)]
    without = np.array([micro(true[rows], chosen[rows]) for rows in kept])
    of_folds = np.var(each, ddof=1) * (1 / 2 + 1 / 4)
    of_rows = 19 * without.var() * (1 + 2 / 4)
    reach = 4.302653 * np.sqrt(of_folds + of_rows)  # t with 2 degrees of freedom
    assert (low, high) == pytest.approx((max(0, value - reach), min(1, value + reach)))


def test_map_is_of_the_labels_with_a_positive_in_any_fold() -> None:
    truth = np.array([[True, False, False], [False, False, False]])
    folds = [StoredScores(truth * 0.5, truth), StoredScores(truth * 0.5, truth[:, [1, 0, 2]])]
    assert labels_with_positives(folds[:1]) == (1, 3)
    assert labels_with_positives(folds) == (2, 3)


def simulated_folds(seed: int) -> tuple[list[StoredScores], float, float]:
    """Five folds of 80 rows, scored by logistic regression; its true mAP and Micro-F1 from all rows."""
    from ssmlbench.kit.logistic import choose_strength, fit_logistic

    random = np.random.default_rng(seed)
    features = random.normal(size=(1580, 10)).astype(np.float32)
    weights = np.array([[1.0, -1, 0.5], [0.5, 1, -1]]).repeat(5, axis=0) / 2
    labels = (features @ weights + random.logistic(size=(1580, 3)) > 1).astype(np.int8)

    def scores(train: Any, rows: Any) -> Any:
        strength = choose_strength(features[train], labels[train], seed)
        return fit_logistic(features[train], labels[train], strength).scores(features[rows])

    few, many = np.arange(80), np.arange(80, 1580)

    def judged(train: Any, rows: Any) -> StoredScores:
        found = scores(train, np.concatenate([rows, train, many]))
        thresholds = calibrated_thresholds(found[len(rows) :], labels[train].mean(axis=0))
        return StoredScores(found[: len(rows)], labels[rows] == 1, {"thresholds": thresholds})

    parts = [(few[few % 5 != fold], few[few % 5 == fold]) for fold in range(5)]
    used = judged(few, many)
    chosen = used.scores >= used.parameters["thresholds"]
    of_map = average_precision_score(used.truth, used.scores)
    of_f1 = f1_score(used.truth, chosen, average="micro")
    return [judged(*part) for part in parts], float(of_map), float(of_f1)


@pytest.mark.slow
def test_intervals_hold_the_truth_of_a_model_that_learns_from_all_rows() -> None:
    """Few rows, and a strength chosen in each fold: the scores of folds differ in scale."""
    found = [simulated_folds(seed) for seed in range(20)]
    of_map = [(*map_of_all(folds, 5), true) for folds, true, _ in found]
    of_f1 = [(*micro_f1_of_all(folds, 5), true) for folds, _, true in found]
    for stated in (of_map, of_f1):
        held = sum(low <= true <= high for _, (low, high), true in stated)
        assert held >= 17  # 95 % are 19
    # Ranked together on the folds' own scales, the rows have 0.03 less than the truth.
    assert abs(np.mean([value - true for value, _, true in of_map])) < 0.02


@pytest.fixture(autouse=True)
def stored_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fold has the same two rows."""
    truth = np.array([[1, 0], [0, 1]]) == 1
    thresholds = {"thresholds": np.full(2, 0.5)}
    scores = StoredScores(np.array([[0.9, 0.1], [0.8, 0.4]]), truth, thresholds)
    read = StoredScores.read
    monkeypatch.setattr(
        StoredScores, "read", lambda folder: scores if folder == FOLD_FOLDER else read(folder)
    )


FOLD_FOLDER = Path("fold")


class FakeMachine(LearnerSearch):
    """Learners that take a known time on a clock of their own."""

    now = 0.0
    fold_seconds: ClassVar[dict[str, float]] = {
        "prior": 1,
        "worse": 0.5,
        "knn": 3,
        "logistic": 20,
        "quick": 10,
        "slow": 40,
        "late": 400,
        "endless": 1e6,
    }
    done: ClassVar[set[tuple[str, int]]]
    slower_after = math.inf  # from then on the machine takes four times as long
    epochs = 0  # that a run tells of

    def specs(self, method: str, folds: int) -> list[Any]:
        return [(method, fold) for fold in range(folds)] if folds else [(method, -1)]

    def make(self, specs: Any, listener: Any, time_limit: float | None = None) -> list[Finished]:
        made = []
        took = 0.0
        for method, fold in specs:  # those of one call are made at the same time
            seconds = self.fold_seconds[method] * (1.2 if fold < 0 else 1)
            seconds *= 4 if self.now > self.slower_after else 1
            for epoch in range(1, self.epochs + 1):
                type(self).now += seconds / self.epochs
                listener((method, fold), EpochEnded(epoch, self.epochs, {}, seconds / self.epochs))
            if (method, fold) in self.done:
                pass
            elif time_limit is not None and seconds > time_limit:
                took = max(took, time_limit)
                continue
            else:
                took = max(took, seconds)
            self.done.add((method, fold))
            value = {"map": self.fold_seconds[method] / 1e3 + fold / 100, "micro_f1": 0.5}
            metrics = {rule: {"default": value} for rule in ("calibrated", "threshold", "top-k")}
            result: Any = {"metrics": metrics, "cost": {"seconds": seconds}, "uses": "both pools"}
            made.append(Finished((method, fold), result, FOLD_FOLDER))  # type: ignore[arg-type]
        type(self).now += took
        for spec in specs:
            if spec not in self.done:
                listener(spec, Failed("took longer than the time limit"))
        return made


def fake_search(
    seconds: float, *candidates: str, told_epochs: int = 0, load_after: float = math.inf
) -> tuple[Recommended, list[str], float, list[Any]]:
    """What was found, what was said, when it ended, and which events were heard."""

    class Machine(FakeMachine):
        done: ClassVar[set[tuple[str, int]]] = set()
        epochs = told_epochs
        slower_after = load_after

    jobs_of_two = SimpleNamespace(plan=lambda specs, plugins: SimpleNamespace(jobs=2))
    budget = TimeBudget(seconds, lambda: Machine.now)
    search = Machine("mine", None, jobs_of_two, {}, budget, candidates)  # type: ignore[arg-type]
    said: list[str] = []
    events: list[Any] = []
    ended: list[Any] = []
    search.ended, search.report = ended.append, said.append
    found = search.search(5, lambda spec, event: events.append(event))
    assert (found.winner.name, -1) in Machine.done
    assert bool(ended) == any("no time for it" in line or "not used" in line for line in said)
    return found, said, Machine.now, events


def names(found: Recommended) -> list[str]:
    return [one.name for one in found.learners]


LEFT_OUT = "left out, the budget has no time for it"


@pytest.mark.parametrize(
    ("seconds", "expected", "said", "end"),
    [
        # prior 3, quick 30 + 12, slow 120 + 48; a tenth is kept for labelling.
        (260, ["slow", "quick", "prior"], [], 213),
        # Three rounds of 40 and 1.5 more do not fit: it is ended before the first is over.
        (230, ["quick", "prior"], [f"slow: {LEFT_OUT}"], 81),
        # Too little for five folds of the first that can be used: two folds, and nothing more.
        (
            20,
            ["quick", "prior"],
            [
                "quick: the budget has time for 2 of 5 folds; so for all",
                "the budget is used up; not tried: slow",
            ],
            25,
        ),
    ],
)
def test_the_budget_holds_folds_and_the_last_training(
    seconds: float, expected: list[str], said: list[str], end: float
) -> None:
    found, heard, now, events = fake_search(seconds, "prior", "quick", "slow")
    assert names(found) == expected
    assert found.winner.name == expected[0]
    assert heard == said
    assert now == pytest.approx(end, abs=1)
    assert not events  # a learner that is ended has not failed
    assert len({len(one.runs) for one in found.learners}) == 1


def test_the_baseline_is_judged_on_fewer_folds_rather_than_left_out() -> None:
    # 27 s of the machine are gone; two folds of 20 at a time and its last training fit into 72.
    found, heard, now, _ = fake_search(100, "prior", "knn", "logistic")
    assert heard == ["logistic: the budget has time for 2 of 5 folds; so for all"]
    assert [(one.name, len(one.runs)) for one in found.learners] == [
        *(("logistic", 2), ("knn", 2), ("prior", 2))
    ]
    assert now <= 90


@pytest.mark.parametrize("load_after", [40, 100, 160, 170, 200, 205])
def test_the_budget_holds_when_the_machine_gets_busy(load_after: float) -> None:
    found, _, now, _ = fake_search(260, "prior", "quick", "slow", load_after=load_after)
    assert now <= 0.9 * 260 + 1
    assert found.winner.name in ("quick", "slow")


def test_a_winner_that_cannot_be_trained_in_time_is_told_and_not_used() -> None:
    found, heard, _, _ = fake_search(260, "prior", "quick", "slow", load_after=160)
    assert names(found) == ["slow", "quick", "prior"]
    assert found.winner.name == "quick"
    assert heard[0].startswith("slow: the best on folds, but its training on every labelled row")


def test_a_run_that_will_be_late_is_ended_early() -> None:
    found, heard, now, _ = fake_search(1300, "prior", "quick", "late", "slow", told_epochs=40)
    assert heard[0] == f"late: {LEFT_OUT}"
    assert names(found) == ["slow", "quick", "prior"]
    late = 5 * 400 / 40
    fine = 2 * 6.2 * (1 + 10 + 40)  # this machine's clock counts epochs and rounds
    assert now <= late + fine


def test_learners_that_are_too_slow_leave_time_for_others() -> None:
    found, heard, now, _ = fake_search(500, "prior", "quick", "endless", "endless", "slow")
    assert names(found) == ["slow", "quick", "prior"]
    assert heard == [f"endless: {LEFT_OUT}"] * 2
    assert now <= 0.9 * 500


def test_the_floor_is_used_only_if_there_is_nothing_else() -> None:
    assert fake_search(100, "prior")[0].winner.name == "prior"
    assert fake_search(100, "prior", "worse")[0].winner.name == "worse"


def test_one_command_from_texts_to_labelled_texts(
    plugin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from ssmlbench.cli.recommend import recommend

    recommend(
        dataset="topics",
        plugin=[str(plugin)],
        method="prior,knn,logistic",
        folds=2,
        out=tmp_path / "labels.csv",
        results=tmp_path / "results",
        device="cpu",
        jobs=1,
    )
    said = capsys.readouterr().out
    assert "encoded by tfidf" in said
    assert "logistic wins" in said
    stated = re.search(r"expect Micro-F1 (\S+) \[.*\] .* and mAP (\S+) \[", " ".join(said.split()))
    assert stated is not None
    assert "topics: 40 labelled and 50 unlabelled rows, 3 labels" in said
    assert "50 unlabelled rows are labelled" in said
    labels = pd.read_csv(tmp_path / "labels.csv", keep_default_na=False)
    assert labels.id.tolist() == [f"text {i}" for i in range(40, 90)]
    runs, _ = read_finished([tmp_path / "results"])
    assert sorted(run.spec.judged_on for run in runs) == ["nothing", "nothing", *["test"] * 6]
    judged = [r for r in runs if r.result["metrics"] and r.spec.method == "logistic"]
    folds = [StoredScores.read(run.folder) for run in judged]
    assert float(stated[2]) == pytest.approx(map_of_all(folds, 2)[0], abs=6e-4)
    command = re.search(r"ssmlbench predict --run (\w+)", said)
    assert command is not None
    assert command[1] in {run.spec.hash for run in runs if run.spec.judged_on == "nothing"}
