"""Regime given: labels as they stand, judged on a test file, by folds, or on nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ssmlbench.api import DatasetAdapter, Row
from ssmlbench.boards.build import build_boards
from ssmlbench.boards.query import Query
from ssmlbench.boards.render.notes import footnotes
from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import RunSpec
from ssmlbench.data import prepare
from ssmlbench.grid.request import GridRequest, expand
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.judge import Judge
from ssmlbench.protocol.observation import observe
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.finished import read_finished
from ssmlbench.runs.resolve import resolve

LABELLED, PARTLY, UNLABELLED = 30, 6, 24
SHORT = {"epochs": 2, "batch_size": 16, "labelled_batch_size": 8}


class _Given(DatasetAdapter):
    """Vectors of which some rows are fully labelled, some partly, some not at all."""

    kind = "vector"
    backbone = "vector"

    def label_names(self) -> list[str]:
        return ["a", "b", "c"]

    def rows(self, split: str) -> Iterator[Row]:
        random = np.random.default_rng(len(split))
        for i in range(LABELLED + PARTLY + UNLABELLED if split == "train" else 20):
            positive = tuple(int(k) for k in np.flatnonzero(random.random(3) < 0.5))
            vector = random.normal(size=6).astype(np.float32)
            vector[list(positive)] += 2
            if split == "test" or i % 2 == 0:  # 30 of 60, spread over the split
                yield Row(vector, positive)
            elif i < 2 * PARTLY:
                yield Row(vector, tuple(k for k in positive if k), unknown=(0,))
            else:
                yield Row(vector, None)


class WithTest(_Given):
    """It has a test split."""

    name = "with-test"


class WithoutTest(_Given):
    """It has training rows only."""

    name = "without-test"

    def splits(self) -> tuple[str, ...]:
        return ("train",)


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugins:
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    loaded = Plugins()
    loaded.add(WithTest)
    loaded.add(WithoutTest)
    return loaded


def given(plugins: Plugins, **fields: Any) -> RunSpec:
    asked = {"method": "bce", "dataset": "without-test", "regime": "given", **SHORT, **fields}
    return resolve(plugins, {}, **asked)


def truth_of(plugins: Plugins, name: str = "without-test") -> Any:
    return prepare(plugins.datasets[name]()).truth("train")


# ---------------------------------------------------------------------------- what is observed


def test_nothing_is_hidden_and_nothing_is_made_up(plugins: Plugins) -> None:
    truth = truth_of(plugins, "with-test")
    seen = observe(truth, given(plugins, dataset="with-test"))
    assert (len(seen.labelled), len(seen.unlabelled)) == (LABELLED, PARTLY + UNLABELLED)
    assert np.array_equal(seen.labels[seen.labelled], truth[seen.labelled])
    assert (seen.labels[seen.unlabelled] == -1).all()
    # Positives among the fully labelled rows.
    assert np.allclose(seen.prior, (truth[seen.labelled] == 1).mean(axis=0))


def test_methods_for_partial_labels_learn_from_partly_labelled_rows(plugins: Plugins) -> None:
    truth = truth_of(plugins, "with-test")
    spec = given(plugins, dataset="with-test", method="an")
    seen = observe(truth, spec)
    assert (len(seen.labelled), len(seen.unlabelled)) == (LABELLED + PARTLY, UNLABELLED)
    assert np.array_equal(seen.labels[seen.labelled], truth[seen.labelled])
    assert (seen.labels[seen.labelled] == -1).any()
    known = truth[seen.labelled]
    assert np.allclose(seen.prior, (known == 1).sum(axis=0) / (known >= 0).sum(axis=0))
    assert spec.hash != given(plugins, dataset="with-test").hash


def test_five_seeds_are_the_folds_of_one_shuffle(plugins: Plugins) -> None:
    truth = truth_of(plugins)
    base = given(plugins)
    assert base.folds == 5
    seen = [observe(truth, dataclasses.replace(base, seed=seed)) for seed in range(10)]
    whole = set(np.flatnonzero((truth >= 0).all(axis=1)))
    for first in (0, 5):
        folds = [set(one.judged) for one in seen[first : first + 5]]
        assert set.union(*folds) == whole
        assert sum(map(len, folds)) == len(whole)
    assert set(seen[0].judged) != set(seen[5].judged)  # another shuffle
    for one in seen:
        pools = [set(one.labelled), set(one.unlabelled), set(one.judged)]
        assert set.intersection(*pools) == set()
        assert not set(one.judged) & (set(one.labelled) | set(one.unlabelled))


def test_stratified_folds_spread_a_rare_label(plugins: Plugins) -> None:
    truth = np.zeros((50, 3), dtype=np.int8)
    truth[:5, 0] = 1  # five positives, one for each fold
    truth[::2, 1] = 1
    truth[::3, 2] = 1
    base = dataclasses.replace(given(plugins), split="stratified")
    judged = [observe(truth, dataclasses.replace(base, seed=s)).judged for s in range(5)]
    assert [int(truth[rows, 0].sum()) for rows in judged] == [1] * 5


@pytest.mark.parametrize("selection", ["last", "val"])
def test_training_never_sees_the_labels_it_is_judged_on(plugins: Plugins, selection: Any) -> None:
    truth = truth_of(plugins)
    judge = Judge.of(given(plugins, selection=selection), truth, None)
    seen = judge.visible()
    assert np.array_equal(judge.judged_truth, truth[judge.observation.judged])
    assert (seen.labels[seen.judged] == -1).all()
    assert (seen.labels[seen.validation] == -1).all()
    assert not set(seen.validation) & set(seen.judged)
    assert len(seen.validation) == (0 if selection == "last" else 5)  # 20 % of 24


# ------------------------------------------------------------------------------- what is typed


def specs(plugins: Plugins, **values: Any) -> list[RunSpec]:
    asked = {"method": ("bce",), "dataset": ("without-test",), "regime": ("given",), **values}
    return expand(plugins, GridRequest(asked))


def test_without_a_seed_every_fold_is_a_run(plugins: Plugins) -> None:
    assert [s.seed for s in specs(plugins)] == [0, 1, 2, 3, 4]
    assert [s.seed for s in specs(plugins, folds=3)] == [0, 1, 2]
    assert [s.seed for s in specs(plugins, seed=(7,))] == [7]
    assert [s.seed for s in specs(plugins, dataset=("with-test",))] == [0]


def test_a_test_file_judges_unless_folds_are_asked_for(plugins: Plugins) -> None:
    assert given(plugins, dataset="with-test").folds is None
    assert given(plugins, dataset="with-test", folds=3).folds == 3
    assert given(plugins, folds=0).judged_on == "nothing"
    assert given(plugins, dataset="with-test", folds=0).judged_on == "test"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"folds": 1}, "--folds 1: must be at least 2"),
        ({"folds": 0, "selection": "oracle"}, "--selection oracle needs test rows"),
        ({"regime": "full", "dataset": "with-test", "folds": 3}, "--folds is for --regime given"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_makes_no_sense_is_one_line(
    plugins: Plugins, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        given(plugins, **fields)


def test_too_few_labelled_rows_for_the_folds_is_one_line(plugins: Plugins) -> None:
    """Before the first run, and not once in each of them."""
    with pytest.raises(UserError, match="--folds 16: 30 rows have all their labels known"):
        given(plugins, folds=16)
    with pytest.raises(UserError, match="30 rows have all their labels known"):
        observe(truth_of(plugins), dataclasses.replace(given(plugins), folds=16))


def test_no_fully_labelled_row_is_one_line() -> None:
    spec = RunSpec(method="bce", dataset="x", regime="given")
    with pytest.raises(UserError, match="no training row has all its labels known"):
        observe(np.array([[-1, 1]], dtype=np.int8), spec)


# ----------------------------------------------------------------------------------- whole runs


def test_folds_make_a_board_with_their_spread(plugins: Plugins, tmp_path: Path) -> None:
    context = RunContext(tmp_path / "results", "cpu")
    for method in ("bce", "logistic"):
        for seed in range(2):
            execute(given(plugins, method=method, folds=2, seed=seed), plugins, context)
    execute(given(plugins, method="logistic", folds=0), plugins, context)
    runs, complaints = read_finished([tmp_path / "results"])
    assert not complaints
    (board,) = build_boards(runs, Query())
    assert {row.name for row in board.rows} == {"bce", "logistic"}  # one was judged on nothing
    assert all(cell.std is not None for row in board.rows for cell in row.cells.values())
    assert any("mean ± std over 2 folds of the labelled rows" in note for note in footnotes(board))
    with pytest.raises(UserError, match="each fold of --regime given has its own"):
        build_boards(runs, Query(draws=100))


@pytest.mark.parametrize("method", ["fixmatch", "an", "label_spreading", "forest"])
def test_every_kind_of_learner_runs_on_labels_as_they_stand(
    plugins: Plugins, tmp_path: Path, method: str
) -> None:
    for fields in ({"folds": 0}, {"dataset": "with-test"}):
        spec = given(plugins, method=method, **fields)
        execute(spec, plugins, RunContext(tmp_path / "results", "cpu"))
    runs, _ = read_finished([tmp_path / "results"])
    by_judge = {run.spec.judged_on: run.result for run in runs}
    assert by_judge["nothing"]["metrics"] == {}
    assert 0 < by_judge["test"]["metrics"]["threshold"]["default"]["map"] <= 1
