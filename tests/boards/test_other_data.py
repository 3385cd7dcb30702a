"""Boards whose data are not the published data set: they say so, and are not set against papers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ssmlbench.boards.build import build_boards
from ssmlbench.boards.csv_files import export, read_exported
from ssmlbench.boards.layout import SETS
from ssmlbench.boards.published import read_published
from ssmlbench.boards.query import Query
from ssmlbench.boards.render import TEXT_FORMATS, boards_document, title
from ssmlbench.boards.render.layout import layout_document
from ssmlbench.boards.render.side_by_side import side_by_side_document
from ssmlbench.boards.side_by_side import SideBySide, side_by_side
from ssmlbench.runs.finished import Finished
from tests.support.board_runs import grid

UNLIKE = ["train rows: 800 here, 53,840 published", "2 rows were skipped when it was prepared (x)"]


def runs_on(root: Path, unlike: list[str], value: float = 0.5, **changes: object) -> list[Finished]:
    runs = grid(root, {"bbam": [value, value]}, dataset="aapd", **changes)
    for run in runs:
        run.result["data"] = {"rows": {}, "labels": 54, "unlike_published": unlike}
    return runs


def beside_papers(runs: list[Finished]) -> SideBySide:
    values = [v for v in read_published() if v.dataset == "aapd" and v.regime == "semi"]
    (table,) = side_by_side(values, build_boards(runs, Query()))
    return table


@pytest.mark.parametrize("format_", ["markdown", "latex", "html", "json"])
def test_the_title_and_a_note_say_it_in_every_format(tmp_path: Path, format_: str) -> None:
    boards = build_boards(runs_on(tmp_path, UNLIKE), Query())
    assert title(boards[0]).endswith("not the published data §")
    text = TEXT_FORMATS[format_](boards_document(boards))
    assert "not the published data" in text
    assert "train rows: 800 here, 53,840 published" in text


@pytest.mark.parametrize(
    ("format_", "mark"), [("markdown", "§"), ("latex", r"\S{}"), ("html", "§")]
)
def test_a_layout_marks_its_columns_and_explains_the_mark(
    tmp_path: Path, format_: str, mark: str
) -> None:
    runs = runs_on(tmp_path / "other", UNLIKE) + grid(tmp_path, {"bbam": [0.4]}, dataset="scene")
    text = TEXT_FORMATS[format_](layout_document(build_boards(runs, Query()), SETS))
    assert f"aapd {mark}" in text
    assert f"scene {mark}" not in text
    assert f"{mark} Warning: not the published aapd (train rows: 800 here" in text


def test_data_that_are_the_published_ones_have_no_such_title(tmp_path: Path) -> None:
    boards = build_boards(runs_on(tmp_path, []), Query())
    assert "published" not in TEXT_FORMATS["markdown"](boards_document(boards))


def test_beside_papers_there_is_no_difference(tmp_path: Path) -> None:
    same = beside_papers(runs_on(tmp_path / "same", []))
    other = beside_papers(runs_on(tmp_path / "other", UNLIKE))
    assert any(row.difference("map", "0.1") is not None for row in same.rows)
    assert all(row.difference("map", "0.1") is None for row in other.rows)
    shown, hidden = (side_by_side_document([table], [], "top-k") for table in (same, other))
    assert "Δ" in shown.sections[0].panels[0].headers
    assert all("Δ" not in panel.headers for panel in hidden.sections[0].panels)
    assert "not the published data" in hidden.sections[0].title
    records = json.loads(TEXT_FORMATS["json"](hidden))["published"]
    assert {record["difference"] for record in records} == {None}
    assert any(record["measured"] for record in records)


def test_the_published_data_are_the_main_board_even_with_fewer_runs(tmp_path: Path) -> None:
    runs = runs_on(tmp_path, UNLIKE, data="small") + runs_on(tmp_path, [], 0.6, data="whole")[:1]
    main, apart = build_boards(runs, Query())
    assert (main.setting["data"], apart.setting["data"]) == ("whole", "small")
    assert beside_papers(runs).board == main


def test_an_exported_file_remembers(tmp_path: Path) -> None:
    (file,) = export(runs_on(tmp_path / "r", UNLIKE), tmp_path, "c")
    (board,) = build_boards(read_exported([file])[0], Query())
    assert board.unlike_published == UNLIKE
