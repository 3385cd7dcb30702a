"""The report's figures: as SVG of the page and as files."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from ssmlbench.boards.board import Board
from ssmlbench.boards.build import build_boards
from ssmlbench.boards.report import sections as sections_module
from ssmlbench.boards.report import write_figures
from ssmlbench.boards.report.critical_difference import critical_differences
from ssmlbench.boards.report.figures import render
from ssmlbench.boards.report.html import html_page, summary_tables
from ssmlbench.boards.report.inline_svg import for_page
from ssmlbench.boards.report.sections import report_sections, styles_of
from ssmlbench.boards.report.series import (
    over_levels,
)
from ssmlbench.boards.report.style import (
    MUTED,
)
from ssmlbench.core.errors import UserError
from ssmlbench.protocol.metrics import METRICS
from ssmlbench.runs.finished import Finished
from tests.boards.report.conftest import QUERY
from tests.support.board_runs import grid, one_board
from tests.support.report_runs import CLOSING, IMAGE

MAP = METRICS["map"]


@pytest.mark.parametrize("kind", ["pdf", "png", "svg"])
def test_a_figure_has_the_same_bytes_each_time(boards: list[Board], kind: str) -> None:
    series = over_levels(boards[0], MAP)
    once, again = (render(series, styles_of(boards), kind) for _ in range(2))
    assert once == again
    assert once.startswith({"pdf": b"%PDF", "png": b"\x89PNG", "svg": b"<?xml"}[kind])
    assert b"Date" not in once


def test_a_drawing_keeps_only_what_is_allowed() -> None:
    drawn = b"""<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">
      <script>alert(1)</script><image xlink:href="http://x"/><style>*{}</style>
      <defs><path id="m1" d="M 1.23456 2"/></defs><g id="unused" onclick="x()">
      <use xlink:href="#m1" style="fill: #0072b2; stroke: #8a8f98"/><use xlink:href="http://x"/>
      <text style="font: 9px 'DejaVu Sans'">a &lt; b</text></g></svg>"""
    root = ET.fromstring(for_page(drawn, 'say "x"', "f7-"))
    assert [e.tag for e in root.iter()] == ["svg", "defs", "path", "use", "use", "text"]
    path, use, elsewhere, text = list(root.iter())[2:]
    assert path.attrib == {"id": "f7-m1", "d": "M1.2 2"}
    assert use.attrib == {"href": "#f7-m1", "fill": "var(--hue-1)", "stroke": "var(--muted)"}
    assert elsewhere.attrib == {}
    assert (text.attrib, text.text) == ({"font-size": "9"}, "a < b")
    assert root.get("aria-label") == 'say "x"'
    assert MUTED == "#8a8f98"


def test_figures_are_written_one_a_file(boards: list[Board], tmp_path: Path) -> None:
    toy = [board for board in boards if board.dataset == "toy"]
    written = write_figures(toy, QUERY, tmp_path / "new" / "figures", ("svg",))
    assert sorted(written) == sorted((tmp_path / "new" / "figures").iterdir())
    names = {file.name for file in written}
    assert "quality-toy-semi-map-over-pi.svg" in names
    assert "training-toy-semi-pi-0.05-bce-losses.svg" in names
    assert "cost-toy-semi-pi-0.2-map-against-s-epoch.svg" in names


def test_figures_of_one_kind_are_written_alone(boards: list[Board], tmp_path: Path) -> None:
    toy = [board for board in boards if board.dataset == "toy"]
    written = write_figures(toy, QUERY, tmp_path / "q", ("svg",), ("quality", "cost"))
    assert {file.name.partition("-")[0] for file in written} == {"quality", "cost"}
    with pytest.raises(UserError, match=r"no figure of ranks to draw\. semi: no diagram"):
        write_figures(toy, QUERY, tmp_path / "none", ("svg",), ("ranks",))
    assert not (tmp_path / "none").exists()


def test_the_summary_has_every_method_on_every_data_set(boards: list[Board]) -> None:
    (table,) = summary_tables(boards, QUERY)
    assert [heading.dataset for heading in table.headings] == ["", *[IMAGE] * 3, *["toy"] * 3, ""]
    assert table.spans == [("", 1, ""), (IMAGE, 3, IMAGE), ("toy", 3, "toy"), ("", 1, "")]
    best = table.rows[0]
    assert best.method == f"cap (loss={CLOSING})"
    assert [cell.text for cell in best.cells[1:]] == [
        *["0.655", "0.705", "0.805"] * 2,
        "1.00",
    ]


def test_rows_know_what_they_learn_from(tmp_path: Path) -> None:
    runs = grid(tmp_path, {"bce": [0.5], "cap": [0.6], "old": [0.4]})
    for run, uses in zip(runs, ("labelled rows", "both pools", ""), strict=True):
        run.result["uses"] = uses
    boards = build_boards(runs, QUERY)
    (table,) = summary_tables(boards, QUERY)
    assert {row.method: row.tier for row in table.rows} == {
        "bce": "labelled",
        "cap": "both",
        "old": "",
    }
    assert 'data-method="bce" data-tier="labelled"' in html_page(boards, [], QUERY)


def test_tests_that_find_nothing_share_one_note(tmp_path: Path) -> None:
    runs: list[Finished] = []
    for level in range(1, 7):
        order = ("a", "b", "c") if level % 2 else ("c", "b", "a")
        values = {name: [0.5 + 0.1 * i] for i, name in enumerate(order)}
        runs += grid(tmp_path, values, pi=0.1 * level)
    metrics = [METRICS[key] for key in ("map", "micro_f1", "hamming")]
    _, notes = critical_differences([one_board(runs)], metrics)
    found = [note for note in notes if "finds no difference" in note]
    assert len(found) == 1
    assert "mAP (p = 1), Micro-F1 (p = 1), Hamming loss (p = 1)" in found[0]
    assert len(notes) == len(set(notes)) <= 3


def test_many_curves_are_capped_and_the_page_says_so(
    boards: list[Board], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sections_module, "CURVES", 3)
    monkeypatch.setattr(sections_module, "CELLS", 4)
    found = {section.key: section for section in report_sections(boards, QUERY)}
    assert sum(len(group.toggles) for group in found["training"].groups) == 3
    assert any("Curves of 3 of 4" in note for note in found["training"].notes)
    assert len(found["cost"].groups) == 4
    assert any("first 4 of 6" in note for note in found["cost"].notes)
