"""Tables in the shapes that papers print, in every format."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ssmlbench.boards.board import Board
from ssmlbench.boards.build import build_boards
from ssmlbench.boards.layout import METRICS, SETS, layout_tables
from ssmlbench.boards.query import Query
from ssmlbench.boards.render import TEXT_FORMATS, RichDocument, layout_document
from ssmlbench.boards.render.document import Document, Panel, TableSection, texts
from ssmlbench.boards.render.names import RowNames, display_name
from ssmlbench.boards.render.numbers import NumberStyle
from ssmlbench.core.console import Console
from ssmlbench.core.errors import UserError
from ssmlbench.runs.finished import Finished
from tests.support.board_runs import grid
from tests.support.latex import compile_latex, needs_latex, paper

VALUES = {"bce": [0.5, 0.7], "cap": [0.8, 0.9], "mine": [0.3, 0.3]}


def runs_on(root: Path, datasets: Sequence[str], pis: Sequence[float]) -> list[Finished]:
    runs = [
        run
        for dataset in datasets
        for pi in pis
        for run in grid(root, VALUES, dataset=dataset, pi=pi)
    ]
    for run in runs:
        run.result["uses"] = "labelled rows" if run.spec.method == "bce" else "both pools"
    return runs


@pytest.fixture
def boards(tmp_path: Path) -> list[Board]:
    return build_boards(runs_on(tmp_path, ("scene", "yeast"), (0.05, 0.1)), Query())


def test_sets_are_methods_by_data_sets_and_levels_for_each_metric(boards: list[Board]) -> None:
    tables = layout_tables(boards, SETS)
    assert [table.metrics[0].key for table in tables] == [m.key for m in boards[0].metrics]
    table = next(table for table in tables if table.metrics[0].key == "map")
    assert [(c.board.dataset, c.level) for c in table.columns] == [
        ("scene", "0.05"),
        ("scene", "0.1"),
        ("yeast", "0.05"),
        ("yeast", "0.1"),
    ]
    assert table.rows == ["cap", "bce", "mine"]
    assert table.ranks == {"cap": 1.0, "bce": 2.0, "mine": 3.0}


def test_metrics_are_methods_by_metrics_for_each_data_set_and_level(boards: list[Board]) -> None:
    tables = layout_tables(boards, METRICS)
    assert [(t.boards[0].dataset, t.columns[0].level, len(t.columns)) for t in tables] == [
        ("scene", "0.05", 5),
        ("scene", "0.1", 5),
        ("yeast", "0.05", 5),
        ("yeast", "0.1", 5),
    ]


def test_a_row_that_one_data_set_lacks_has_a_dash_and_no_rank(tmp_path: Path) -> None:
    runs = runs_on(tmp_path, ("scene", "yeast"), (0.1,))
    runs = [r for r in runs if (r.spec.method, r.spec.dataset) != ("cap", "yeast")]
    boards = build_boards(runs, Query(metrics=("map",)))
    (table,) = layout_tables(boards, SETS)
    assert table.rows == ["bce", "mine", "cap"]
    assert "cap" not in table.ranks
    text = TEXT_FORMATS["markdown"](layout_document(boards, SETS))
    assert "| cap | **0.8500 ± 0.0707** | – | – |" in text
    assert "– has no run" in text


def test_rows_that_no_column_has_in_common_are_still_ordered_by_quality(tmp_path: Path) -> None:
    runs = runs_on(tmp_path, ("scene", "yeast"), (0.1,))
    runs = [r for r in runs if (r.spec.method == "mine") == (r.spec.dataset == "yeast")]
    runs += grid(tmp_path / "more", {"an": [0.1, 0.2]}, dataset="scene")
    (table,) = layout_tables(build_boards(runs, Query(metrics=("map",))), SETS)
    assert table.ranks == {}
    assert table.rows == ["cap", "mine", "bce", "an"]  # better rows: 0, 0 of 1, 1/3, 2/3


def test_digits_percent_names_and_marks(boards: list[Board]) -> None:
    style, names = NumberStyle(1, True), RowNames(True, {"mine": "Ours (full)"})
    text = TEXT_FORMATS["markdown"](layout_document(boards, SETS, style, names))
    assert "### mAP (%) on scene, yeast (semi)" in text
    assert "| CAP | **85.0 ± 7.1** |" in text
    assert "| BCE ° | 60.0 ± 14.1 |" in text
    assert "| Ours (full) | 30.0 ± 0.0 |" in text
    assert "Each number is over 2 seeds." in text
    assert "less the baseline of each column (BCE), paired by seed" in text
    assert "| CAP | +25.0 |" in text  # 0.85 - 0.60, of each pair of seeds +0.3 and +0.2
    with pytest.raises(UserError, match="--digits 40: must lie between 0 and 9"):
        NumberStyle(40)


def test_a_difference_whose_interval_excludes_zero_is_marked(tmp_path: Path) -> None:
    runs = grid(tmp_path, {"bce": [0.5, 0.5, 0.5], "cap": [0.6, 0.61, 0.62], "an": [0.4, 0.5, 0.6]})
    for run in runs:
        run.result["uses"] = "labelled rows" if run.spec.method == "bce" else "both pools"
    document = layout_document(build_boards(runs, Query(metrics=("map",))), SETS)
    found = {row[0].text: row[1].text for row in document.sections[0].panels[1].rows}
    assert found == {"cap": "+0.110*", "bce °": "baseline", "an": "+0.000"}


def test_names_as_papers_write_them() -> None:
    shown = [display_name(n) for n in ("cap", "fixmatch", "d2l_mat", "llcp", "knn", "bce", "mine")]
    assert shown == ["CAP", "FixMatch", "D2L + MAT", "LL-Cp", "ML-kNN", "BCE", "mine"]
    names = RowNames(True, {"bbam": "Ours"})
    assert names.of("bbam (balance=false)") == "Ours (balance=false)"
    assert names.of("cap @3f2a91b 2026-11-16") == "CAP @3f2a91b 2026-11-16"


def test_csv_has_the_same_shape_in_full_precision(boards: list[Board]) -> None:
    rows = list(csv.DictReader(io.StringIO(TEXT_FORMATS["csv"](layout_document(boards, SETS)))))
    assert len(rows) == 5 * 3
    cap = next(row for row in rows if (row["metric"], row["method"]) == ("map", "cap"))
    assert float(cap["yeast π=0.1"]) == pytest.approx(0.85)
    assert float(cap["yeast π=0.1 std"]) == pytest.approx(0.005**0.5)
    wide = TEXT_FORMATS["csv"](layout_document(boards, METRICS, NumberStyle(2, True)))
    first = next(csv.DictReader(io.StringIO(wide)))
    assert (first["dataset"], first["level"], first["map"]) == ("scene", "0.05", "85.0")


def test_html_groups_the_columns(boards: list[Board]) -> None:
    text = TEXT_FORMATS["html"](layout_document(boards, SETS))
    assert '<th scope="colgroup" colspan="2">scene</th>' in text


def shown(boards: list[Board], layout: str, width: int) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(RichDocument(layout_document(boards, layout)))
    return console.export_text()


def test_a_narrow_table_breaks_only_headers_that_are_wider_than_their_column() -> None:
    row = texts("cap", "a reason as long as a sentence takes, and then a few words more", "0.1234")
    panel = Panel(["method", "what does not fit", "Hamming loss ↓"], [row], left=2)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(RichDocument(Document([TableSection("misprints", [panel])])))
    said = console.export_text()
    assert "what does not fit" in said  # its column is wide: one word a line would be torn
    assert "Hamming loss" not in said
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("layout", [SETS, METRICS])
def test_the_terminal_cuts_no_number_at_any_width(tmp_path: Path, width: int, layout: str) -> None:
    sets = ("scene", "yeast", "emotions", "a-data-set-of-mine")
    boards = build_boards(runs_on(tmp_path, sets, (0.05, 0.1)), Query(metrics=("map", "hamming")))
    text = shown(boards, layout, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    # three methods, two metrics, eight cells
    assert len(re.findall(r"\b0\.\d{4}\b", text.replace("±0.", "± x"))) >= 3 * 2 * 8


# ------------------------------------------------------------------------------------------ LaTeX


def test_latex_has_groups_a_caption_with_the_metric_labels_and_notes(boards: list[Board]) -> None:
    text = TEXT_FORMATS["latex"](layout_document(boards, SETS))
    assert r"\multicolumn{4}{c}{scene}" in text
    assert r"\cmidrule(lr){2-5} \cmidrule(lr){6-9}" in text
    assert r"\caption{mAP on scene, yeast (semi). Best in bold, second underlined.}" in text
    labels = re.findall(r"\\label\{tab:([^}]+)\}", text)
    assert "map-semi" in labels
    assert len(set(labels)) == len(labels) == text.count(r"\caption{")
    # the notes of a table are below it once, not below its differences again
    assert text.count("less the baseline of each column") == 1


def test_an_oracle_rule_and_selection_have_their_marks(tmp_path: Path) -> None:
    runs = grid(tmp_path, VALUES, selection="oracle")
    query = Query(metrics=("micro_f1", "map"), decision="top-k")
    text = TEXT_FORMATS["latex"](layout_document(build_boards(runs, query), METRICS))
    assert r"Micro-F1$\ddagger$ $\uparrow$" in text
    assert r"cap $\dagger$" in text
    assert r"$\dagger$ the epoch was selected on the test set" in text
    assert r"$\ddagger$ label sets by the true number of labels" in text


def test_a_narrow_table_stays_in_its_column_and_a_wide_one_takes_the_page(tmp_path: Path) -> None:
    runs = runs_on(tmp_path, ("a", "b", "c", "d"), (0.05, 0.1))
    query = Query(metrics=("map",), baseline="none")
    wide = TEXT_FORMATS["latex"](layout_document(build_boards(runs, query), SETS))
    one = [run for run in runs if run.spec.dataset == "a" and run.spec.pi == 0.1]
    narrow = TEXT_FORMATS["latex"](layout_document(build_boards(one, query), SETS))
    assert r"\begin{table*}" in wide
    assert r"\begin{table}" in narrow
    assert r"\begin{table*}" not in narrow


@needs_latex
@pytest.mark.parametrize("options", ["", "twocolumn"])
def test_tables_fit_papers_of_one_and_two_columns(tmp_path: Path, options: str) -> None:
    """Three data sets at two levels, and twelve: none is wider than its place, all labels are known."""
    few = build_boards(runs_on(tmp_path / "few", "abc", (0.05, 0.1)), Query())
    many = build_boards(
        runs_on(tmp_path / "many", "abcdefghijkl", (0.05, 0.1)), Query(metrics=("map",))
    )
    texts = {
        "sets": layout_document(few, SETS),
        "metrics": layout_document(few, METRICS),
        "many": layout_document(many, SETS),
    }
    for name, document in texts.items():
        (tmp_path / f"{name}.tex").write_text(TEXT_FORMATS["latex"](document))
    names = ["sets", "metrics"] if options else ["many", "metrics"]
    (tmp_path / "paper.tex").write_text(paper(names, options))
    log = compile_latex(tmp_path, "paper")
    assert "Overfull" not in log
    assert "multiply defined" not in log
    assert "Missing character" not in log


# ------------------------------------------------------------------------------- the command line


def call(words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    from ssmlbench.cli import main

    monkeypatch.setattr(sys, "argv", ["ssmlbench", "compare", *words.split()])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_the_command_prints_the_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    runs_on(tmp_path / "results", ("scene", "yeast"), (0.1,))
    monkeypatch.chdir(tmp_path)
    words = "--layout sets --percent --digits 1 --rename mine=Ours --format markdown"
    assert call(words, monkeypatch) == 0
    text = capsys.readouterr().out
    assert text.count("### ") == 1  # mAP, as no metric is typed
    assert "| Ours | 30.0 ± 0.0 | 30.0 ± 0.0 | 3.00 |" in text
    assert call("--percent --format markdown --metric mAP", monkeypatch) == 0
    assert "| cap | 2 | **85.00 ± 7.07** |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--layout set", "Did you mean sets?"),
        ("--rename min=Ours", "--rename min: no such method here. Did you mean mine?"),
        ("--rename mine", "expected key=value"),
        ("--rename mine=", "--rename mine=: expected a text"),
        ("--rename mine=cap", "cap and mine would both be called cap"),
        ("--rename mine=X --rename cap=X", "cap and mine would both be called X"),
        ("--digits -1", "must lie between 0 and 9"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, words: str, told: str
) -> None:
    runs_on(tmp_path / "results", ("scene",), (0.1,))
    monkeypatch.chdir(tmp_path)
    assert call(words, monkeypatch) == 2
    assert told in capsys.readouterr().err
