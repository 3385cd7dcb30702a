"""A row is one version of a method's code, in everything that is made from runs."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from ssmlbench.boards.build import build_boards, shown_runs
from ssmlbench.boards.columns import COLUMNS
from ssmlbench.boards.csv_files import export, read_exported
from ssmlbench.boards.published import read_published
from ssmlbench.boards.query import Query
from ssmlbench.boards.render import as_markdown, boards_document
from ssmlbench.boards.report.series import runs_by_cell
from ssmlbench.boards.side_by_side import side_by_side
from ssmlbench.boards.significance import blocks_over_cells, blocks_over_seeds
from ssmlbench.boards.versions import Versions
from ssmlbench.core.errors import UserError
from ssmlbench.runs.finished import Finished
from tests.support.board_runs import grid, one_board

ALL = Query(versions=("all",))


def made(
    root: Path, day: int, code: str, values: dict[str, list[float]], **changes: object
) -> list[Finished]:
    """Runs of one version, finished on a day of November 2026."""
    runs = grid(root / code, values, code=code, **changes)
    for run in runs:
        run.result["made_with"] = {"finished": f"2026-11-{day:02}T10:00:00.000+00:00"}
    return runs


@pytest.fixture
def edited(tmp_path: Path) -> list[Finished]:
    """`mine` was edited twice and run with two seeds each time; `bce` stayed as it is."""
    return [
        *made(tmp_path, 3, "ast-cccccccccc", {"mine": [0.3, 0.4]}),
        *made(tmp_path, 1, "ast-aaaaaaaaaa", {"mine": [0.9, 1.0]}),
        *made(tmp_path, 2, "ast-bbbbbbbbbb", {"mine": [0.5, 0.6]}),
        *made(tmp_path, 1, "ast-dddddddddd", {"bce": [0.7, 0.7]}),
    ]


def test_only_the_newest_version_is_shown_and_a_line_counts_the_others(
    edited: list[Finished],
) -> None:
    board = one_board(edited)
    assert {row.name: row.cells["map", "0.1"].mean for row in board.rows} == pytest.approx(
        {"bce": 0.7, "mine": 0.35}
    )
    assert all(len(row.cells["map", "0.1"].seeds) == 2 for row in board.rows)
    assert not board.missing
    text = as_markdown(boards_document([board]))
    assert "Hidden: 2 rows of older code, 4 runs" in text
    assert "--versions all shows them" in text


def test_older_versions_are_rows_with_a_digest_and_a_day(edited: list[Finished]) -> None:
    board = one_board(edited, versions=("all",))
    means = {row.name: row.cells["map", "0.1"].mean for row in board.rows}
    assert means == pytest.approx(
        {
            "mine @aaaaaaa 2026-11-01": 0.95,
            "bce": 0.7,
            "mine @bbbbbbb 2026-11-02": 0.55,
            "mine": 0.35,
        }
    )
    assert all(len(row.cells["map", "0.1"].seeds) == 2 for row in board.rows)
    assert not board.hidden


def test_a_version_is_chosen_by_the_first_digits_of_its_digest(edited: list[Finished]) -> None:
    board = one_board(edited, versions=("bbb",))
    assert [row.name for row in board.rows] == ["bce", "mine @bbbbbbb 2026-11-02"]
    with pytest.raises(UserError, match="--versions beef: no run has code with such a digest"):
        one_board(edited, versions=("beef",))


def test_digests_of_the_old_form_are_older_whenever_they_were_made(tmp_path: Path) -> None:
    runs = made(tmp_path, 9, "1234567890", {"bce": [0.9]})
    runs += made(tmp_path, 1, "ast-1", {"bce": [0.5]})
    (row,) = one_board(runs).rows
    assert (row.name, row.cells["map", "0.1"].mean) == ("bce", 0.5)


@pytest.fixture
def half_done(tmp_path: Path) -> list[Finished]:
    """`mine` was edited and run again on `toy` only."""
    others = {"bce": [0.5, 0.5], "cap": [0.6, 0.6]}
    runs = made(tmp_path, 1, "ast-ddd", others) + made(tmp_path, 1, "ast-ddd", others, dataset="b")
    runs += made(tmp_path, 1, "ast-aaaaaaa1", {"mine": [0.9, 0.9]})
    runs += made(tmp_path, 1, "ast-aaaaaaa1", {"mine": [0.8, 0.8]}, dataset="b")
    return runs + made(tmp_path, 2, "ast-bbbbbbb1", {"mine": [0.1, 0.2]})


def test_two_data_sets_with_two_versions_say_so_and_are_not_tested_together(
    half_done: list[Finished],
) -> None:
    boards = build_boards(half_done, Query())
    rows = {board.dataset: {row.name for row in board.rows} for board in boards}
    assert rows["toy"] == {"bce", "cap", "mine"}
    assert rows["b"] == {"bce", "cap", "mine @aaaaaaa 2026-11-01"}
    old = next(board for board in boards if board.dataset == "b")
    assert "the newest code has no run here: mine." in as_markdown(boards_document([old]))
    (blocks,) = blocks_over_cells(boards, COLUMNS["map"])
    assert blocks.names == ("bce", "cap")
    assert set(blocks.left_out) == {"mine", "mine @aaaaaaa 2026-11-01"}
    # the filter of data sets does not turn old code into new
    (only,) = build_boards(half_done, Query(datasets=("b",)))
    assert "mine @aaaaaaa 2026-11-01" in {row.name for row in only.rows}


@pytest.mark.parametrize("query", [Query(), ALL])
def test_no_test_over_seeds_and_no_figure_mixes_versions(
    edited: list[Finished], query: Query
) -> None:
    (board,) = build_boards(edited, query)
    (blocks,) = blocks_over_seeds([board], COLUMNS["map"])
    assert len(blocks.blocks) == 2
    for runs in runs_by_cell(board).values():
        assert len({run.spec.code for run in runs}) == 1
        assert len(runs) == 2


def test_beside_a_paper_stands_the_newest_version(tmp_path: Path) -> None:
    runs = made(tmp_path, 1, "ast-aaaaaaa", {"bbam": [0.9]}, dataset="voc2012")
    runs += made(tmp_path, 2, "ast-bbbbbbb", {"bbam": [0.4]}, dataset="voc2012")
    values = [v for v in read_published() if v.dataset == "voc2012" and v.regime == "semi"]
    (table,) = side_by_side(values, build_boards(runs, ALL))
    joined = [row for row in table.rows if row.measured and row.published]
    assert {row.method for row in joined} == {"bbam"}
    assert "bbam @aaaaaaa 2026-11-01" in {row.method for row in table.rows}


def test_an_export_leaves_hidden_versions_out_and_names_the_others(
    tmp_path: Path, edited: list[Finished]
) -> None:
    versions = Versions.of(edited)
    assert len(shown_runs(edited, Query(), versions)) == 4
    (file,) = export(shown_runs(edited, ALL, versions), tmp_path, "c", versions)
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    assert {row["method"] for row in csv.DictReader(lines)} == {
        "bce",
        "mine",
        "mine @aaaaaaa 2026-11-01",
        "mine @bbbbbbb 2026-11-02",
    }
    assert build_boards(read_exported([file])[0], Query()) == build_boards(edited, Query())


def test_a_baseline_may_be_named_without_its_version(half_done: list[Finished]) -> None:
    boards = build_boards(half_done, Query(baseline="mine"))
    named = {board.dataset: board.baselines["0.1"] for board in boards}
    assert named == {"b": "mine @aaaaaaa 2026-11-01", "toy": "mine"}


@pytest.mark.parametrize(
    ("typed", "key"),
    [("mAP", "map"), ("MAP", "map"), ("Micro-F1", "micro_f1"), ("macro f1", "macro_f1"),
     ("Hamming loss", "hamming"), ("one-loss", "one_loss"), ("s/epoch", "seconds_per_epoch")],
)  # fmt: skip
def test_a_metric_is_known_by_its_title_in_any_spelling(typed: str, key: str) -> None:
    assert Query(metrics=(typed,)).metrics == (key,)
