"""Boards and sections → one HTML page that needs nothing else: no network, no file beside it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import ssmlbench
from ssmlbench.leaderboard import Board, Query
from ssmlbench.metrics import Metric
from ssmlbench.render import (
    cell_text,
    column_title,
    footnotes,
    panels,
    row_name,
    seeds_text,
    title,
)
from ssmlbench.report.contents import Section, styles_of
from ssmlbench.report.figures import Series, render
from ssmlbench.report.names import clean
from ssmlbench.report.provenance import listings
from ssmlbench.report.svg import for_page
from ssmlbench.store import Finished


@dataclass(frozen=True)
class TableCell:
    text: str
    value: str  # what the column is sorted by, "" for nothing
    place: int = 0


@dataclass(frozen=True)
class TableHeader:
    text: str
    first: str  # the direction a first click sorts in
    wide: bool = False


@dataclass(frozen=True)
class LeaderTable:
    caption: str
    headers: list[TableHeader]
    rows: list[tuple[str, list[TableCell]]]


def leader_tables(board: Board) -> list[LeaderTable]:
    """The board's tables as `compare` lays them out, with what each cell is sorted by."""
    tables = []
    for columns in panels(board):
        several = len(board.levels) > 1
        caption = f"{title(board)} · {columns[0][0].title}" if several else title(board)
        headers = [
            TableHeader("seeds", "descending"),
            *(TableHeader(column_title(board, m, lv), _best_first(m)) for m, lv in columns),
            TableHeader("rank", "ascending"),
        ]
        rows = [(row_name(board, row), _cells(board, row, columns)) for row in board.rows]
        tables.append(LeaderTable(caption, headers, rows))
    return tables


def _best_first(metric: Metric) -> str:
    return "descending" if metric.higher_is_better else "ascending"


def _cells(board: Board, row: Any, columns: Sequence[tuple[Metric, str]]) -> list[TableCell]:
    cells = [TableCell(seeds_text(row), str(max(len(c.seeds) for c in row.cells.values())))]
    for metric, level in columns:
        cell = row.cells.get((metric.key, level))
        text = cell_text(cell, metric)
        if cell is None:
            cells.append(TableCell(text, ""))
        else:
            place = cell.place if len(board.rows) > 1 else 0
            cells.append(TableCell(text, repr(cell.mean), place))
    return [*cells, TableCell(f"{row.rank:.2f}", repr(row.rank))]


def page(boards: Sequence[Board], sections: Sequence[Section], query: Query) -> str:
    """The whole page. Every name in it is escaped by the template."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    assets = files(__package__) / "assets"
    css, script, template = (
        (assets / name).read_text(encoding="utf-8") for name in ("page.css", "page.js", "page.html")
    )
    styles = styles_of(boards)
    numbers = iter(range(1_000_000))

    def drawing(series: Series) -> Markup:
        svg = render(series, styles, "svg")
        return Markup(for_page(svg, clean(series.alt), f"f{next(numbers)}-"))

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: clean(value) if type(value) is str else value,
    )
    runs = runs_of(boards)
    return environment.from_string(template).render(
        policy=(
            f"default-src 'none'; style-src '{_digest(css)}'; script-src '{_digest(script)}'; "
            "base-uri 'none'; form-action 'none'"
        ),
        css=Markup(css),
        script=Markup(script),
        version=ssmlbench.__version__,
        facts=facts(boards, runs, query),
        boards=[
            {
                "title": title(board),
                "apart": board.apart,
                "tables": leader_tables(board),
                "notes": footnotes(board),
            }
            for board in boards
        ],
        sections=sections,
        listings=listings(runs),
        drawing=drawing,
    )


def runs_of(boards: Sequence[Board]) -> list[Finished]:
    return [run for board in boards for run in board.runs]


def facts(boards: Sequence[Board], runs: Sequence[Finished], query: Query) -> list[tuple[str, str]]:
    """What the page is about, in a line or two."""
    specs = [run.spec for run in runs]
    return [
        ("runs", str(len(runs))),
        ("methods", str(len({spec.method for spec in specs}))),
        ("data sets", ", ".join(sorted({spec.dataset for spec in specs}))),
        ("seeds", ", ".join(map(str, sorted({spec.seed for spec in specs})))),
        ("decision rule", query.decision),
        ("leaderboards", str(len(boards))),
    ]


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
