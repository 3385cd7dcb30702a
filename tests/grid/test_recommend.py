"""recommend: learners compared by folds within a budget, the winner trained on everything."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score

from ssmlbench.cli.options import seconds
from ssmlbench.core.errors import UserError
from ssmlbench.core.events import EpochEnded, Failed
from ssmlbench.grid.recommend import Recommendation, TimeBudget, Tried, fold_difference
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [("30m", 1800), ("2h", 7200), ("90s", 90), ("1h30m", 5400), (" 5m ", 300), ("1.5h", 5400)],
)
def test_a_budget_is_a_time(text: str, expected: float) -> None:
    assert seconds(text, "--budget") == expected


@pytest.mark.parametrize("text", ["", "soon", "0s", "m30", "-5m", "30m2h", "5 minutes"])
def test_what_is_no_time_is_one_line(text: str) -> None:
    with pytest.raises(UserError, match=r"expected a time above zero, e\.g\. --budget 90s"):
        seconds(text, "--budget")


def test_a_difference_has_an_interval_that_knows_of_shared_training_rows() -> None:
    from scipy import stats

    ours, theirs = (0.5, 0.6, 0.7, 0.65), (0.45, 0.5, 0.68, 0.6)
    found = fold_difference(Tried("a", "", ours, 0), Tried("b", "", theirs, 0))
    each = np.subtract(ours, theirs)
    # Nadeau and Bengio: 1 / k + (test rows) / (training rows) of the variance, here 1 / 4 + 1 / 3.
    scale = each.std(ddof=1) * np.sqrt(1 / 4 + 1 / 3)
    assert found.interval == pytest.approx(stats.t.interval(0.95, 3, loc=each.mean(), scale=scale))
    assert found.mean == pytest.approx(each.mean())
    assert not found.clear


@pytest.fixture(autouse=True)
def stored_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fold has the same two rows."""
    scores = StoredScores(np.array([[0.9, 0.1], [0.8, 0.4]]), np.array([[1, 0], [0, 1]]) == 1)
    read = StoredScores.read
    monkeypatch.setattr(
        StoredScores, "read", lambda folder: scores if folder == FOLD_FOLDER else read(folder)
    )


FOLD_FOLDER = Path("fold")


class FakeMachine(Recommendation):
    """Learners that take a known time on a clock of their own."""

    now = 0.0
    fold_seconds: ClassVar[dict[str, float]] = {
        "prior": 1,
        "quick": 10,
        "slow": 40,
        "late": 400,
        "endless": 1e6,
    }
    done: ClassVar[set[tuple[str, int]]]
    epochs = 0  # that a run tells of

    def specs(self, method: str, folds: int) -> list[Any]:
        return [(method, fold) for fold in range(folds)]

    def make(self, specs: Any, listener: Any, time_limit: float | None = None) -> list[Finished]:
        made = []
        took = 0.0
        for method, fold in specs:  # those of one call are made at the same time
            seconds = self.fold_seconds[method]
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
            value = {"map": seconds / 1e3 + fold / 100, "micro_f1": 0.5}
            metrics = {rule: {"default": value} for rule in ("calibrated", "threshold", "top-k")}
            result: Any = {"metrics": metrics, "cost": {"seconds": seconds}, "uses": "both pools"}
            made.append(Finished((method, fold), result, FOLD_FOLDER))  # type: ignore[arg-type]
        type(self).now += took
        for spec in specs:
            if spec not in self.done:
                listener(spec, Failed("took longer than the time limit"))
        return made


def fake_search(
    seconds: float, *candidates: str, told_epochs: int = 0
) -> tuple[list[Tried], list[str], list[Any]]:
    class Machine(FakeMachine):
        done: ClassVar[set[tuple[str, int]]] = set()
        epochs = told_epochs

    jobs_of_two = SimpleNamespace(plan=lambda specs, plugins: SimpleNamespace(jobs=2))
    budget = TimeBudget(seconds, lambda: Machine.now)
    search = Machine("mine", None, jobs_of_two, {}, budget, candidates)  # type: ignore[arg-type]
    said: list[str] = []
    events: list[Any] = []
    ended: list[Any] = []
    search.ended = ended.append
    tried = search.tried(5, lambda spec, event: events.append(event), said.append)
    assert len(ended) == 2 * sum("no time for it" in line for line in said)  # two at a time
    return tried, [*said, f"{Machine.now:g}"], events


@pytest.mark.parametrize(
    ("seconds", "names", "said"),
    [
        # prior 3, quick 30, slow 120, and 1.5 × 40 to train the winner; a tenth is kept.
        (240, ["slow", "quick", "prior"], ["153"]),
        # Three rounds of 40 and 1.5 more would not fit: it is ended before the first is over.
        (200, ["quick", "prior"], ["slow: left out, the budget has no time for it", "65.7"]),
        # Nothing is left: two are tried whatever they take.
        (20, ["quick", "prior"], ["the budget is used up; not tried: slow", "33"]),
        (1, ["quick", "prior"], ["the budget is used up; not tried: slow", "33"]),
    ],
)
def test_the_budget_holds_folds_and_the_last_training(
    seconds: float, names: list[str], said: list[str]
) -> None:
    tried, heard, events = fake_search(seconds, "prior", "quick", "slow")
    assert [one.name for one in tried] == names
    assert [*heard[:-1], f"{float(heard[-1]):.3g}"] == said
    assert not events  # a learner that is ended has not failed


def test_a_run_that_will_be_late_is_ended_early() -> None:
    tried, heard, _ = fake_search(1200, "prior", "quick", "late", "slow", told_epochs=40)
    assert heard[0] == "late: left out, the budget has no time for it"
    assert [one.name for one in tried] == ["slow", "quick", "prior"]
    late = 5 * 400 / 40
    fine = 2 * 5 * (1 + 10 + 40)  # this machine's clock counts epochs and rounds
    assert float(heard[-1]) <= late + fine


def test_learners_that_are_too_slow_leave_time_for_others() -> None:
    tried, heard, _ = fake_search(400, "prior", "quick", "endless", "endless", "slow")
    assert [one.name for one in tried] == ["slow", "quick", "prior"]
    assert heard[:-1] == ["endless: left out, the budget has no time for it"] * 2
    assert float(heard[-1]) + 1.5 * 40 <= 400


def test_one_command_from_texts_to_labelled_texts(
    plugin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from ssmlbench.cli.recommend import recommend

    recommend(
        dataset="topics",
        plugin=[str(plugin)],
        method="prior,logistic,knn",
        folds=2,
        out=tmp_path / "labels.csv",
        results=tmp_path / "results",
        device="cpu",
        jobs=1,
    )
    said = capsys.readouterr().out
    assert "encoded by tfidf" in said
    assert "logistic wins" in said
    stated = re.search(r"expect Micro-F1 (\S+) ± .* and mAP (\S+) \(", " ".join(said.split()))
    assert stated is not None
    assert "50 unlabelled rows are labelled" in said
    labels = pd.read_csv(tmp_path / "labels.csv", keep_default_na=False)
    assert labels.id.tolist() == [f"text {i}" for i in range(40, 90)]
    runs, _ = read_finished([tmp_path / "results"])
    assert sorted(run.spec.judged_on for run in runs) == ["nothing", *["test"] * 6]
    judged = [r for r in runs if r.result["metrics"] and r.spec.method == "logistic"]
    folds = [StoredScores.read(run.folder) for run in judged]
    pooled = average_precision_score(
        np.concatenate([f.truth for f in folds]), np.concatenate([f.scores for f in folds])
    )
    assert float(stated[2]) == pytest.approx(pooled, abs=6e-4)
    command = re.search(r"ssmlbench predict --run (\w+)", said)
    assert command is not None
    assert command[1] in {run.spec.hash for run in runs if run.spec.judged_on == "nothing"}
