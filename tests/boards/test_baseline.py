"""Estimators on boards, and every row against the best one that uses labelled rows only."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ssmlbench.boards.baseline import paired_difference
from ssmlbench.boards.board import Difference
from ssmlbench.boards.bootstrap import bootstrap
from ssmlbench.boards.build import build_boards
from ssmlbench.boards.csv_files import export, read_exported
from ssmlbench.boards.query import Query
from ssmlbench.boards.render import as_markdown, boards_document
from ssmlbench.boards.report.html import leader_tables
from ssmlbench.core.errors import UserError
from ssmlbench.protocol.decisions import fit_rules
from ssmlbench.protocol.metrics import average_precision
from ssmlbench.runs.finished import Finished
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.scores import StoredScores
from tests.support.board_runs import BASE, finished, one_board

LABELLED, BOTH = "labelled rows", "both pools"


def runs_of(
    root: Path,
    method: str,
    values: list[float],
    uses: str = "",
    estimator: bool = False,
    **changes: Any,
) -> list[Finished]:
    """One finished run for each value, its mAP; the seeds are 0, 1, …."""
    made = []
    for seed, value in enumerate(values):
        spec = dataclasses.replace(BASE, method=method, seed=seed, **changes)
        run = finished(root, spec.for_estimator() if estimator else spec, value)
        if uses:
            run.result["uses"] = uses
        made.append(run)
    return made


def test_an_estimator_stands_in_the_main_table_of_its_setting(tmp_path: Path) -> None:
    runs = [
        *runs_of(tmp_path, "bce", [0.5, 0.6], epochs=40),
        *runs_of(tmp_path, "bce", [0.4], epochs=7),
        *runs_of(tmp_path, "logistic", [0.7, 0.7], estimator=True),
    ]
    main, short = build_boards(runs, Query())
    assert [row.name for row in main.rows] == ["logistic", "bce"]
    assert [row.is_estimator for row in main.rows] == [True, False]
    assert (main.setting["epochs"], main.separate_reason) == (40, "")
    assert [row.name for row in short.rows] == ["bce"]


@pytest.mark.parametrize("change", [{"scaling": "none"}, {"split": "stratified"}, {"data": "d2"}])
def test_an_estimator_of_another_setting_has_a_table_of_its_own(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    runs = [
        *runs_of(tmp_path, "bce", [0.5]),
        *runs_of(tmp_path, "logistic", [0.7], estimator=True, **change),
    ]
    main, own = build_boards(runs, Query())
    assert [row.name for row in main.rows] == ["bce"]
    ((name, value),) = change.items()
    assert own.separate_reason == f"{name} {value} instead of {getattr(BASE, name)}"
    text = as_markdown(boards_document([own]))
    assert "epochs" not in text


def test_estimators_need_no_method_beside_them(tmp_path: Path) -> None:
    board = one_board(runs_of(tmp_path, "logistic", [0.7], LABELLED, estimator=True))
    text = as_markdown(boards_document([board]))
    assert "small-cnn, random split; mean ± std over seeds" in text
    assert "Fitted in one call, without the options of training: logistic" in text


def test_a_filter_for_the_selection_keeps_estimators(tmp_path: Path) -> None:
    runs = [
        *runs_of(tmp_path, "bce", [0.5], selection="val"),
        *runs_of(tmp_path, "cap", [0.5]),
        *runs_of(tmp_path, "logistic", [0.7], estimator=True),
    ]
    board = one_board(runs, selections=("val",))
    assert [row.name for row in board.rows] == ["logistic", "bce"]


def test_only_rows_with_an_epoch_selected_on_the_test_set_have_its_mark(tmp_path: Path) -> None:
    runs = [
        *runs_of(tmp_path, "bce", [0.5], selection="oracle"),
        *runs_of(tmp_path, "logistic", [0.7], LABELLED, estimator=True),
    ]
    text = as_markdown(boards_document([one_board(runs)]))
    assert "| bce † |" in text
    assert "| logistic ° |" in text


def test_the_best_row_of_labelled_rows_is_the_baseline_of_each_level(tmp_path: Path) -> None:
    runs = [
        *runs_of(tmp_path, "bce", [0.5, 0.6, 0.7], LABELLED),
        *runs_of(tmp_path, "bce", [0.9, 0.9, 0.9], LABELLED, pi=0.2),
        *runs_of(tmp_path, "forest", [0.6, 0.6, 0.9], LABELLED, estimator=True),
        *runs_of(tmp_path, "forest", [0.8, 0.8, 0.8], LABELLED, estimator=True, pi=0.2),
        *runs_of(tmp_path, "cap", [0.7, 0.8, 0.9], BOTH),
        *runs_of(tmp_path, "cap", [0.8, 0.8], BOTH, pi=0.2),
    ]
    board = one_board(runs)
    assert board.baselines == {"0.1": "forest", "0.2": "bce"}
    rows = {row.name: row.differences for row in board.rows}
    # cap − forest by seed: 0.1, 0.2, 0.0
    expected = stats.ttest_1samp([0.1, 0.2, 0.0], 0).confidence_interval(0.95)
    assert rows["cap"]["0.1"].mean == pytest.approx(0.1)
    assert rows["cap"]["0.1"].interval == pytest.approx((expected.low, expected.high))
    assert (rows["cap"]["0.2"].mean, rows["cap"]["0.2"].seeds) == (pytest.approx(-0.1), 2)
    assert rows["cap"]["0.2"].interval is None
    assert set(rows["forest"]) == {"0.2"}
    text = as_markdown(boards_document([board]))
    assert "| method | mAP vs forest π=0.1 | mAP vs bce π=0.2 |" in text
    assert "| cap | +0.100 [-0.148, +0.348] | -0.100 |" in text
    assert "| forest ° | baseline | -0.100 [-0.100, -0.100] |" in text
    assert "° learns from labelled rows only; the other rows use both pools." in text
    assert "no interval with fewer than 3 common seeds" in text
    records = {(r["method"], r["level"], r["metric"]): r for r in boards_document([board]).records}
    assert records["cap", "0.1", "map"]["baseline"] == "forest"
    assert records["cap", "0.1", "map"]["difference"] == pytest.approx(0.1)
    assert "difference" not in records["cap", "0.1", "micro_f1"]
    assert records["bce", "0.1", "map"]["uses"] == LABELLED


@pytest.mark.parametrize("levels", [(0.1,), (0.1, 0.2)])
def test_the_report_has_the_table_of_differences(tmp_path: Path, levels: tuple[float, ...]) -> None:
    runs = [
        run
        for pi in levels
        for run in (
            *runs_of(tmp_path, "forest", [0.5, 0.6, 0.7], LABELLED, estimator=True, pi=pi),
            *runs_of(tmp_path, "cap", [0.6, 0.6, 0.8], BOTH, pi=pi),
        )
    ]
    *_, last = leader_tables(one_board(runs))
    assert last.caption.endswith(", difference")
    assert {row.cells[0].text for row in last.rows} == {"forest °", "cap"}


def test_intervals_of_folds_know_of_the_training_rows_that_folds_share(tmp_path: Path) -> None:
    folds: dict[str, Any] = {"regime": "given", "pi": None, "folds": 5}
    runs = [
        *runs_of(tmp_path, "forest", [0.6, 0.6, 0.9, 0.5], LABELLED, estimator=True, **folds),
        *runs_of(tmp_path, "cap", [0.7, 0.8, 0.9, 0.6], BOTH, **folds),
    ]
    board = one_board(runs)
    (difference,) = next(row for row in board.rows if row.name == "cap").differences.values()
    each = np.array([0.1, 0.2, 0.0, 0.1])
    scale = each.std(ddof=1) * np.sqrt(1 / 4 + 1 / 4)  # test rows / training rows of a fold: 1 / 4
    assert difference.interval == pytest.approx(stats.t.interval(0.95, 3, each.mean(), scale))
    text = as_markdown(boards_document([board]))
    assert "paired by fold, with a 95 % t interval, its variance corrected for the training" in text


def test_differences_are_paired_by_seed(tmp_path: Path) -> None:
    forest = runs_of(tmp_path, "forest", [0.1, 0.2, 0.3, 0.9], LABELLED, estimator=True)
    cap = runs_of(tmp_path, "cap", [0.9, 0.3, 0.4, 0.5], BOTH)
    board = one_board([*forest[1:], *cap])  # seeds 1, 2, 3 are common
    (difference,) = next(row for row in board.rows if row.name == "cap").differences.values()
    assert difference.seeds == 3
    assert difference.mean == pytest.approx((0.1 + 0.1 - 0.4) / 3)


def test_a_loss_is_best_where_it_is_lowest(tmp_path: Path) -> None:
    runs = [
        *runs_of(tmp_path, "bce", [0.5], LABELLED),
        *runs_of(tmp_path, "forest", [0.6], LABELLED, estimator=True),
        *runs_of(tmp_path, "cap", [0.9], BOTH),
    ]
    board = one_board(runs, metrics=("hamming",))
    assert board.baselines == {"0.1": "forest"}
    # `finished` writes 1 - value for losses: 0.1 − 0.4
    assert next(r for r in board.rows if r.name == "cap").differences["0.1"].mean == pytest.approx(
        -0.3
    )


@pytest.mark.parametrize(
    "query", [{"baseline": "none"}, {"metrics": ("seconds_per_epoch",)}, {"methods": ("bce",)}]
)
def test_without_something_to_compare_there_is_no_table_of_differences(
    tmp_path: Path, query: dict[str, Any]
) -> None:
    runs = [
        *runs_of(tmp_path, "bce", [0.5], LABELLED),
        *runs_of(tmp_path, "cap", [0.9], BOTH),
    ]
    board = one_board(runs, **query)
    assert not any(row.differences for row in board.rows)
    assert " vs " not in as_markdown(boards_document([board]))


def test_runs_that_did_not_record_their_rows_are_no_baseline(tmp_path: Path) -> None:
    runs = [*runs_of(tmp_path, "bce", [0.5]), *runs_of(tmp_path, "cap", [0.9])]
    text = as_markdown(boards_document([one_board(runs)]))
    assert "°" not in text
    assert " vs " not in text
    named = one_board(runs, baseline="bce")
    assert named.baselines == {"0.1": "bce"}


def test_where_no_row_is_unlabelled_nothing_is_marked(tmp_path: Path) -> None:
    runs = [
        *runs_of(tmp_path, "bce", [0.5], LABELLED, regime="full", pi=None),
        *runs_of(tmp_path, "cap", [0.9], BOTH, regime="full", pi=None),
    ]
    text = as_markdown(boards_document([one_board(runs)]))
    assert "°" not in text
    assert " vs " not in text


def test_a_baseline_that_is_no_row_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--baseline bcee: no such row.*bce"):
        one_board(runs_of(tmp_path, "bce", [0.5]), baseline="bcee")


def test_an_exported_file_keeps_what_a_row_learnt_from(tmp_path: Path) -> None:
    runs = [
        *runs_of(tmp_path, "forest", [0.5], LABELLED, estimator=True),
        *runs_of(tmp_path, "cap", [0.9], BOTH),
    ]
    files = export(runs, tmp_path / "csv", "command")
    back, complaints = read_exported(files)
    assert not complaints
    board = one_board(back)
    assert {row.name: row.uses for row in board.rows} == {"forest": LABELLED, "cap": BOTH}
    assert board.baselines == {"0.1": "forest"}


def stored(run: Finished, seed: int, skill: float) -> StoredScores:
    """Scores for a run's folder on a test set that all runs share."""
    truth = np.random.default_rng(0).random((60, 3)) < 0.4
    random = np.random.default_rng(seed)
    scores = (random.random(truth.shape) * (1 - skill) + skill * truth).astype(np.float32)
    made = StoredScores(scores, truth, fit_rules(scores, truth.mean(axis=0)))
    made.write(RunFolder(run.folder).scores_file)
    return made


def test_with_bootstrap_both_rows_are_judged_on_the_same_resampled_rows(tmp_path: Path) -> None:
    forest = runs_of(tmp_path, "forest", [0.5, 0.5], LABELLED, estimator=True)
    cap = runs_of(tmp_path, "cap", [0.6, 0.6], BOTH)
    theirs = [stored(run, i, 0.2) for i, run in enumerate(forest)]
    ours = [stored(run, i, 0.3) for i, run in enumerate(cap, 5)]
    board = one_board([*forest, *cap], metrics=("map",), draws=200)
    (difference,) = next(row for row in board.rows if row.name == "cap").differences.values()
    assert difference.over_rows is not None
    low, high = difference.over_rows
    means = [
        np.mean([np.mean(average_precision(run.scores, run.truth)) for run in each])
        for each in (ours, theirs)
    ]
    assert low < means[0] - means[1] < high
    # A row less itself does not move, whichever rows are drawn.
    assert bootstrap(ours, ["map"], draws=100, baseline=ours)["map"] == pytest.approx((0, 0))


def test_differences_are_paired_by_seed_with_a_t_interval() -> None:
    ours, base = {0: 0.5, 1: 0.6, 2: 0.9, 7: 0.1}, {0: 0.4, 1: 0.6, 2: 0.7}
    difference = paired_difference(ours, base)
    assert difference is not None
    test = stats.ttest_rel([0.5, 0.6, 0.9], [0.4, 0.6, 0.7]).confidence_interval(0.95)
    assert (difference.mean, difference.seeds) == (pytest.approx(0.1), 3)
    assert difference.interval == (pytest.approx(test.low), pytest.approx(test.high))
    assert paired_difference({0: 1.0, 1: 2.0}, {0: 1.0, 1: 1.0}) == Difference(0.5, 2)
    assert paired_difference({0: 1.0}, {1: 1.0}) is None
