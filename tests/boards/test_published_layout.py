"""The papers' numbers and ours together in the shapes that papers print."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from ssmlbench.boards.build import build_boards
from ssmlbench.boards.from_python import compare
from ssmlbench.boards.layout import METRICS, SETS
from ssmlbench.boards.published import PublishedValue, filtered, read_published
from ssmlbench.boards.query import Query
from ssmlbench.boards.render import TEXT_FORMATS, Document
from ssmlbench.boards.render.names import RowNames
from ssmlbench.boards.render.numbers import PLAIN, NumberStyle
from ssmlbench.boards.render.published_layout import published_layout_document
from ssmlbench.boards.render.side_by_side import side_by_side_document
from ssmlbench.boards.rule_audit import audit_rules
from ssmlbench.boards.side_by_side import side_by_side
from ssmlbench.core.errors import UserError
from ssmlbench.runs.finished import Finished
from tests.boards.test_layout import call
from tests.support.board_runs import grid
from tests.support.latex import compile_latex, needs_latex, paper

QUERY = Query(datasets=("voc2012", "ohsumed", "scene"), regimes=("semi",), decision="top-k")


@pytest.fixture(scope="module")
def values() -> list[PublishedValue]:
    return read_published()


def document(
    values: list[PublishedValue],
    runs: list[Finished],
    layout: str,
    metrics: tuple[str, ...] = ("map",),
    style: NumberStyle = PLAIN,
    names: RowNames | None = None,
) -> Document:
    query = Query(QUERY.datasets, QUERY.regimes, metrics=metrics, decision="top-k")
    boards = build_boards(runs, query)
    tables = side_by_side(filtered(values, query), boards)
    return published_layout_document(tables, boards, audit_rules(values), layout, style, names)


def test_papers_rows_stand_above_ours_in_one_table(
    tmp_path: Path, values: list[PublishedValue]
) -> None:
    runs = grid(tmp_path, {"cap": [0.5, 0.6], "freematch": [0.4]}, dataset="voc2012")
    found = document(values, runs, SETS)
    # VOC is on both sides, Ohsumed only in papers
    assert [section.title for section in found.sections] == [
        "mAP on voc2012 (semi): papers and ours",
        "mAP on ohsumed (semi): papers",
    ]
    section = found.sections[0]
    panel, differences = section.panels
    assert panel.headers == ["method", "source", "π=0.05", "π=0.1", "π=0.15", "π=0.2"]
    rows = {(row[0].text, row[1].text): [e.text for e in row[2:]] for row in panel.rows}
    assert rows["CAP", "BBAM"][:2] == ["0.7616†", "0.8216†"]  # BBAM's Table 2
    assert rows["cap", "ours"] == ["–", "0.5500 ± 0.0707", "–", "–"]
    assert panel.rows[panel.breaks[0]][1].text == "ours"
    assert "rank" not in panel.headers  # one column of ours: its order is the rank
    # ours less theirs: 0.55 - 0.8216
    shown = {(row[0].text, row[1].text): row[3].text for row in differences.rows}
    assert shown == {("CAP", "BBAM"): "-0.2716"}
    assert any("NeurIPS 2024" in note for note in section.notes)
    assert any("† the epoch was selected on the test set" in note for note in section.notes)
    assert any("it is no test of either" in note for note in section.notes)


def test_a_table_of_metrics_marks_each_number_by_its_rule(
    tmp_path: Path, values: list[PublishedValue]
) -> None:
    runs = grid(tmp_path, {"cap": [0.5, 0.6]}, dataset="ohsumed", pi=0.05)
    found = document(values, runs, METRICS, ("micro_f1", "map"))
    (section,) = [s for s in found.sections if "ohsumed (semi π = 0.05)" in s.title]
    rows = {(row[0].text, row[1].text): [e.text for e in row[2:]] for row in section.panels[0].rows}
    assert rows["SoftMatch", "BBAM"][0].endswith("‡")  # fits the oracle rule
    assert not rows["DRML", "BBAM"][0].endswith("‡")
    assert rows["cap", "ours"][0].endswith("‡")
    assert not rows["cap", "ours"][1].endswith("‡")


def test_ours_have_an_average_rank_over_our_columns(
    tmp_path: Path, values: list[PublishedValue]
) -> None:
    runs = [
        *grid(tmp_path / "a", {"cap": [0.5], "bce": [0.4]}, dataset="voc2012", pi=0.05),
        *grid(tmp_path / "b", {"cap": [0.5], "bce": [0.6], "bbam": [0.7]}, dataset="voc2012"),
    ]
    found = document(values, runs, SETS)
    panel = found.sections[0].panels[0]
    assert panel.headers[-1] == "rank"
    ranks = {row[0].text: row[-1].text for row in panel.rows if row[1].text == "ours"}
    # cap: first and second of the two that every column has; bbam has one column only
    assert ranks == {"bce": "1.50", "cap": "1.50", "bbam": "–"}
    assert {row[-1].text for row in panel.rows if row[1].text != "ours"} == {"–"}
    record = next(r for r in found.records if (r["method"], r["source"]) == ("cap", "ours"))
    assert record["rank"] == 1.5


def test_python_puts_papers_beside_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid(tmp_path / "results", {"cap": [0.5, 0.6]}, dataset="voc2012")
    found = compare(tmp_path / "results", dataset="voc2012", published=True)
    assert found[0].decision == "top-k"
    assert "| cap | ours |" in found.to_markdown(layout="sets")
    assert "CAP †" in found.to_markdown()
    assert "tabular" in found.to_latex(layout="metrics")
    monkeypatch.chdir(tmp_path.parent)  # no results folder: the papers alone
    alone = compare(dataset="voc2012", regime="semi", published=True)
    assert len(alone) == 0
    assert "papers" in alone.to_markdown(layout="sets")
    with pytest.raises(UserError, match="no paper here has such numbers"):
        compare(tmp_path / "results", dataset="nowhere", published=True).to_markdown()


def test_digits_never_exceed_what_a_paper_prints(
    tmp_path: Path, values: list[PublishedValue]
) -> None:
    runs = grid(tmp_path, {"cap": [0.5, 0.6]}, dataset="voc2012")
    style, names = NumberStyle(3, True), RowNames(True, {"cap": "Ours"})
    found = document(values, runs, SETS, style=style, names=names)
    rows = {(row[0].text, row[1].text): row for row in found.sections[0].panels[0].rows}
    assert rows["CAP", "BBAM"][3].text == "82.16†"  # 0.8216 is printed
    assert rows["Ours", "ours"][3].text == "55.000 ± 7.071"
    query = Query(("voc2012",), ("semi",), metrics=("map",), decision="top-k")
    tables = side_by_side(filtered(values, query), build_boards(runs, query))
    beside = TEXT_FORMATS["markdown"](side_by_side_document(tables, [], "top-k", style, names))
    assert "| Ours | CAP † |" in beside
    assert "| 82.16 | **55.000 ± 7.071** | -27.160 |" in beside
    assert "| mAP (%) ↑ |" in beside


def test_data_that_are_not_the_published_ones_have_no_difference(
    tmp_path: Path, values: list[PublishedValue]
) -> None:
    runs = grid(tmp_path, {"cap": [0.5, 0.6]}, dataset="voc2012")
    for run in runs:
        unlike = ["train rows: 8 here, 5,717 published"]
        run.result["data"] = {"rows": {}, "labels": 20, "unlike_published": unlike}
    section = document(values, runs, SETS).sections[0]
    assert len(section.panels) == 1
    assert "voc2012 §" in section.title
    assert any("have no Δ" in note for note in section.notes)


def test_csv_has_the_same_shape(tmp_path: Path, values: list[PublishedValue]) -> None:
    runs = grid(tmp_path, {"cap": [0.5, 0.6]}, dataset="voc2012")
    text = TEXT_FORMATS["csv"](document(values, runs, SETS))
    read = csv.DictReader(io.StringIO(text))
    rows = {(r["method"], r["source"]): r for r in read if r["voc2012 π=0.1"]}
    assert float(rows["CAP", "BBAM"]["voc2012 π=0.1"]) == pytest.approx(0.8216)
    assert float(rows["CAP", "BBAM"]["voc2012 π=0.1 difference"]) == pytest.approx(-0.2716)
    assert float(rows["cap", "ours"]["voc2012 π=0.1"]) == pytest.approx(0.55)


def test_without_runs_the_papers_tables_are_shown(values: list[PublishedValue]) -> None:
    (section,) = document(values, [], SETS).sections
    assert section.title == "mAP on ohsumed, voc2012 (semi): papers"
    assert section.panels[0].breaks == []
    assert any("no finished run here yet" in note for note in section.notes)


@needs_latex
@pytest.mark.parametrize("options", ["", "twocolumn"])
def test_the_tables_fit_papers(tmp_path: Path, values: list[PublishedValue], options: str) -> None:
    runs = grid(tmp_path, {"cap": [0.5, 0.6], "bbam": [0.7, 0.6]}, dataset="voc2012")
    found = document(values, runs, SETS, ("map", "micro_f1"))
    (tmp_path / "tables.tex").write_text(TEXT_FORMATS["latex"](found))
    (tmp_path / "paper.tex").write_text(paper(["tables"], options))
    log = compile_latex(tmp_path, "paper")
    assert not [line for line in log.splitlines() if line.startswith("Overfull \\hbox")]
    assert "multiply defined" not in log


def test_the_command_puts_papers_into_a_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    grid(tmp_path / "results", {"cap": [0.5, 0.6]}, dataset="voc2012")
    monkeypatch.chdir(tmp_path)
    words = "--published --layout sets --dataset voc2012 --regime semi --percent --format markdown"
    assert call(words, monkeypatch) == 0
    text = capsys.readouterr().out
    assert "### mAP (%) on voc2012 (semi): papers and ours" in text
    assert "| cap | ours |" in text
    assert call("--published --rename cpa=x", monkeypatch) == 2
    assert "Did you mean cap?" in capsys.readouterr().err
    assert call("--audit --percent", monkeypatch) == 2
    assert "as papers print them" in capsys.readouterr().err
