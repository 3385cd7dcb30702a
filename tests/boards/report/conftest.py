"""Finished runs for the tests of the report: their folder, boards and page."""

from __future__ import annotations

from pathlib import Path

import pytest

from ssmlbench.boards.board import Board
from ssmlbench.boards.build import build_boards
from ssmlbench.boards.query import Query
from ssmlbench.boards.report.html import html_page
from ssmlbench.boards.report.sections import report_sections
from ssmlbench.runs.finished import read_finished
from tests.support.report_runs import write_results

QUERY = Query(metrics=("map", "hamming"))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_results(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def boards(results: Path) -> list[Board]:
    return build_boards(read_finished([results])[0], QUERY)


@pytest.fixture(scope="module")
def html(boards: list[Board]) -> str:
    return html_page(boards, report_sections(boards, QUERY), QUERY)
