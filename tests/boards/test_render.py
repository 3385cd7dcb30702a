"""Boards as text and as a DataFrame, without a console."""

from __future__ import annotations

import ast
import math
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ssmlbench.boards.board import Board
from ssmlbench.boards.build import build_boards
from ssmlbench.boards.query import Query
from ssmlbench.boards.render import (
    boards_to_csv,
    boards_to_html,
    boards_to_json,
    boards_to_latex,
    boards_to_markdown,
    boards_to_pandas,
)
from ssmlbench.boards.render.latex_text import latex_escape
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
    tags = Tags(boards_to_html([board]))
    assert tags.open == []
    assert tags.inside["b"] == ["0.8500 ± 0.0707"]
    assert tags.inside["u"] == ["0.6000 ± 0.1414"]
    assert "<b>&" in tags.inside["td"]  # a method's name, as text
    assert any("mean ± std over seeds" in note for note in tags.inside["li"])
    assert "toy · semi π = 0.1" in tags.inside["h4"]


def test_html_says_why_a_board_stands_apart(tmp_path: Path) -> None:
    runs = grid(tmp_path, {"bce": [0.5, 0.6]}) + grid(tmp_path, {"bce": [0.9]}, epochs=5)
    tags = Tags(boards_to_html(build_boards(runs, Query())))
    assert any("epochs 5 instead of 40" in text for text in tags.inside["strong"])


def test_text_formats_hold_the_same_numbers(board: Board) -> None:
    assert "| cap | 2 | **0.8500 ± 0.0707** | 1.00 |" in boards_to_markdown([board])
    assert r"\textbf{0.8500} & \textbf{$\pm$ 0.0707}" in boards_to_latex([board])
    assert "cap,map,0.85" in boards_to_csv([board])
    assert '"method": "cap"' in boards_to_json([board])


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
