"""Boards as text and as a DataFrame, without a console."""

from __future__ import annotations

import ast
import io
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich import box
from rich.table import Table
from rich.text import Text

from ssmlbench.boards.board import Board
from ssmlbench.boards.build import build_boards
from ssmlbench.boards.query import Query
from ssmlbench.boards.render import TEXT_FORMATS, RichDocument, boards_document, boards_to_pandas
from ssmlbench.boards.render.document import Document, Entry, Panel, TableSection
from ssmlbench.boards.render.html import as_html
from ssmlbench.boards.render.latex_text import latex_escape
from ssmlbench.core.console import Console
from tests.conftest import ROOT
from tests.support.board_runs import grid, one_board


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return one_board(
        grid(tmp_path, {"bce": [0.5, 0.7], "cap": [0.8, 0.9], "<b>&": [0.1]}), metrics=("map",)
    )


def test_a_frame_has_one_row_a_cell_with_numbers(board: Board) -> None:
    frame = boards_to_pandas([board]).set_index("method")
    assert frame.loc["bce", "mean"] == pytest.approx(0.6)
    assert frame.loc["bce", "std"] == pytest.approx(0.02**0.5)
    assert math.isnan(frame.loc["<b>&", "std"])  # one seed
    assert frame["level"].tolist() == [0.1] * 3
    assert set(frame["metric"]) == {"map"}
    assert frame.loc["cap", "epochs"] == 40  # the setting stands beside the number


def test_a_frame_pivots_to_the_table_of_a_paper(tmp_path: Path) -> None:
    runs = grid(tmp_path, {"bce": [0.5]}, pi=0.1) + grid(tmp_path, {"bce": [0.8]}, pi=0.2)
    frame = boards_to_pandas([one_board(runs, metrics=("map", "hamming"))])
    wide = frame.pivot(index="method", columns=["metric", "level"], values="mean")
    assert wide.loc["bce", ("map", 0.2)] == pytest.approx(0.8)
    assert wide.loc["bce", ("hamming", 0.1)] == pytest.approx(0.5)


def test_a_regime_without_a_number_and_no_board_at_all_are_frames_too(tmp_path: Path) -> None:
    runs = grid(tmp_path, {"bce": [0.5]}, regime="full", pi=None)
    assert boards_to_pandas(build_boards(runs, Query()))["level"].isna().all()
    empty = boards_to_pandas([])
    assert len(empty) == 0
    assert {"method", "metric", "mean"} <= set(empty.columns)


class Tags(HTMLParser):
    """The tags of a fragment, and the text inside each kind of tag."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.inside: dict[str, list[str]] = {}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in self.open:
            self.inside.setdefault(tag, []).append(data)


def test_html_is_balanced_escaped_and_marks_the_two_best(board: Board) -> None:
    tags = Tags(as_html(boards_document([board])))
    assert tags.open == []
    assert tags.inside["b"] == ["0.8500 ± 0.0707"]
    assert tags.inside["u"] == ["0.6000 ± 0.1414"]
    assert "<b>&" in tags.inside["td"]  # a method's name, as text
    assert any("mean ± std over seeds" in note for note in tags.inside["li"])
    assert "toy · semi π = 0.1" in tags.inside["h4"]


def test_html_says_why_a_board_stands_apart(tmp_path: Path) -> None:
    runs = grid(tmp_path, {"bce": [0.5, 0.6]}) + grid(tmp_path, {"bce": [0.9]}, epochs=5)
    tags = Tags(as_html(boards_document(build_boards(runs, Query()))))
    assert any("epochs 5 instead of 40" in text for text in tags.inside["strong"])


def test_text_formats_hold_the_same_numbers(board: Board) -> None:
    written = {name: write(boards_document([board])) for name, write in TEXT_FORMATS.items()}
    assert "| cap | 2 | **0.8500 ± 0.0707** | 1.00 |" in written["markdown"]
    assert r"\textbf{0.8500} & \textbf{$\pm$ 0.0707}" in written["latex"]
    assert "cap,map,0.85" in written["csv"]
    assert '"method": "cap"' in written["json"]


def test_every_character_that_tables_print_has_a_latex_form() -> None:
    """The texts of boards, metrics and options, wherever in the code they are written."""
    without = set()
    for folder in ("boards", "protocol", "core"):
        for file in (ROOT / "ssmlbench" / folder).rglob("*.py"):
            # Reports and analyses are no LaTeX; names.py lists what is taken out of every text.
            if {"report", "analyses", "names.py"} & set(file.parts):
                continue
            nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
            docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            texts = [
                node.value
                for node in nodes
                if isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in docstrings
                and file.name != "latex_text.py"
            ]
            without |= {c for c in "".join(texts) if "U+" in latex_escape(c)}
    assert without == set()


def rich_table(panel: Panel) -> Table:
    """The panel as Rich draws it."""
    table = Table(box=box.HEAVY_HEAD)
    lines = (panel.groups or [""] * len(panel.headers), panel.headers)
    for i, parts in enumerate(zip(*lines, strict=True)):
        justify: Any = "left" if i < panel.left else "right"
        table.add_column(Text("\n".join(parts).lstrip("\n")), justify=justify)
    for i, row in enumerate(panel.rows):
        if i in panel.breaks:
            table.add_section()
        best = ["bold" if len(panel.rows) > 1 and entry.place == 1 else "" for entry in row]
        table.add_row(*(Text(e.text, style) for e, style in zip(row, best, strict=True)))
    return table


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize(
    "panel",
    [
        Panel(["method", "mAP"], [[Entry("cap"), Entry("0.1", place=1)]]),
        Panel(["method", "mAP"], []),
        Panel(
            ["method", "set", "mAP ↑", "F1"],
            [
                [Entry("標籤"), Entry("a"), Entry("0.1 ± 0.2", place=1), Entry("1", place=2)],
                [Entry("bbam"), Entry(""), Entry("–", place=1), Entry("12345", place=1)],
                [Entry("e\u0301\x07"), Entry("b" * 30), Entry("0.3"), Entry("[bold]x")],
            ],
            left=2,
            groups=["", "", "π 0.05", "π 0.05"],
            breaks=[0, 2],
        ),
    ],
)
def test_a_framed_table_is_the_one_that_rich_draws(panel: Panel, encoding: str) -> None:
    for colours in ("truecolor", None):
        drawn = []
        for what in (RichDocument(Document([TableSection("t", [panel])])), rich_table(panel)):
            out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
            force: Any = {"force_terminal": colours is not None, "color_system": colours}
            Console(file=out, width=100, legacy_windows=False, **force).print(what)
            out.flush()
            drawn.append(out.buffer.getvalue().decode())
        assert seen(drawn[1]) in seen(drawn[0])
        assert ("\x1b[1m" in drawn[0]) == (colours is not None)


def seen(text: str) -> str:
    """Each character, with a mark if it is bold: where escapes begin and end is not seen."""
    parts = re.split("\x1b\\[(1|0)m", text)
    bold = [part == "1" for part in ("0", *parts[1::2])]
    return "".join(
        f"{c}*" if b and c != " " else c for b, t in zip(bold, parts[::2], strict=True) for c in t
    )
