"""recommend: learners compared by folds within a budget, the winner trained on everything."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.dispatch import Dispatch
from ssmlbench.grid.recommend import Recommendation, Tried, fold_difference, seconds_of
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
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


def make_here(search: Recommendation, specs: Sequence[RunSpec], listener: Any) -> list[Finished]:
    """Make runs in this process, which is faster than to start workers."""
    for spec in specs:
        execute(spec, search.plugins, search.dispatch.context)
    runs, _ = read_finished([search.dispatch.context.results])
    hashes = [spec.hash for spec in specs]
    chosen = [run for run in runs if run.spec.hash in hashes]
    return sorted(chosen, key=lambda run: hashes.index(run.spec.hash))


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Recommendation, "make", make_here)
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


def test_a_difference_has_a_paired_t_interval() -> None:
    from scipy import stats

    ours, theirs = (0.5, 0.6, 0.7, 0.65), (0.45, 0.5, 0.68, 0.6)
    found = fold_difference(Tried("a", "", ours, 0), Tried("b", "", theirs, 0))
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert found.interval == pytest.approx((expected.low, expected.high))
    assert found.mean == pytest.approx(np.mean(np.subtract(ours, theirs)))
    assert found.clear == (expected.low > 0)


def test_the_budget_ends_the_search(plugin: Path, tmp_path: Path) -> None:
    ticks: Iterator[int] = iter(range(0, 10_000, 100))
    dispatch = Dispatch(RunContext(tmp_path / "results", "cpu", keep_model=True), jobs=1)
    search = Recommendation(
        "topics",
        Plugins([plugin]),
        dispatch,
        {"freeze": True},
        budget=250,
        candidates=("prior", "logistic", "knn"),
        clock=lambda: next(ticks),
    )
    said: list[str] = []
    tried = search.tried(2, lambda spec, event: None, said.append)
    assert [one.name for one in tried] == ["logistic", "prior"]
    assert said == ["the budget is used up; not tried: knn"]


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
    assert "50 unlabelled rows are labelled" in said
    labels = pd.read_csv(tmp_path / "labels.csv", keep_default_na=False)
    assert labels.id.tolist() == [f"text {i}" for i in range(40, 90)]
    runs, _ = read_finished([tmp_path / "results"])
    assert sorted(run.spec.judged_on for run in runs) == ["nothing", *["test"] * 4]
    command = re.search(r"ssmlbench predict --run (\w+)", said)
    assert command is not None
    assert command[1] in {run.spec.hash for run in runs if run.spec.judged_on == "nothing"}
