"""recommend: learners compared by folds within a budget, the winner trained on everything."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

from ssmlbench.core.errors import UserError
from ssmlbench.core.events import Failed
from ssmlbench.grid.recommend import Recommendation, TimeBudget, Tried, fold_difference, seconds_of
from ssmlbench.runs.finished import Finished, read_finished

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
    ("text", "seconds"), [("30m", 1800), ("2h", 7200), ("90s", 90), ("1h30m", 5400), (" 5m ", 300)]
)
def test_a_budget_is_a_time(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "30", "m30", "1.5h"])
def test_what_is_no_time_is_one_line(text: str) -> None:
    with pytest.raises(UserError, match="expected a time such as 30m"):
        seconds_of(text)


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


class FakeMachine(Recommendation):
    """Learners that take a known time on a clock of their own."""

    now = 0.0
    fold_seconds: ClassVar[dict[str, float]] = {"prior": 1, "quick": 10, "slow": 40, "endless": 1e6}
    done: ClassVar[set[tuple[str, int]]]

    def specs(self, method: str, folds: int) -> list[Any]:
        return [(method, fold) for fold in range(folds)]

    def make(self, specs: Any, listener: Any, time_limit: float | None = None) -> list[Finished]:
        made = []
        took = 0.0
        for method, fold in specs:  # those of one call are made at the same time
            seconds = self.fold_seconds[method]
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
            made.append(Finished((method, fold), result, Path()))  # type: ignore[arg-type]
        type(self).now += took
        for spec in specs:
            if spec not in self.done:
                listener(spec, Failed("took longer than the time limit"))
        return made


def fake_search(seconds: float, *candidates: str) -> tuple[list[Tried], list[str], list[Any]]:
    class Machine(FakeMachine):
        done: ClassVar[set[tuple[str, int]]] = set()

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
        # prior 3, quick 30, slow 120, and 1.5 × 40 to train the winner; a twentieth is kept.
        (240, ["slow", "quick", "prior"], ["153"]),
        # Three rounds of 40 and 1.5 more would not fit: it is ended before the first is over.
        (200, ["quick", "prior"], ["slow: left out, the budget has no time for it", "67.9"]),
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
        method="prior,logistic",
        folds=2,
        out=tmp_path / "labels.csv",
        results=tmp_path / "results",
        device="cpu",
        jobs=1,
    )
    said = capsys.readouterr().out
    assert "encoded by tfidf" in said
    assert "logistic wins" in said
    assert "expect mAP" in said
    assert "Micro-F1" in said
    assert "50 unlabelled rows are labelled" in said
    labels = pd.read_csv(tmp_path / "labels.csv", keep_default_na=False)
    assert labels.id.tolist() == [f"text {i}" for i in range(40, 90)]
    runs, _ = read_finished([tmp_path / "results"])
    assert sorted(run.spec.judged_on for run in runs) == ["nothing", *["test"] * 4]
    command = re.search(r"ssmlbench predict --run (\w+)", said)
    assert command is not None
    assert command[1] in {run.spec.hash for run in runs if run.spec.judged_on == "nothing"}
