"""Writes boards and sections as one self-contained HTML page: no network, no other file."""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

import ssmlbench
from ssmlbench.boards.board import Board, BoardRow
from ssmlbench.boards.columns import Column
from ssmlbench.boards.layout import SETS, LayoutTable, layout_tables
from ssmlbench.boards.query import Query
from ssmlbench.boards.render import Entry, boards_document, footnotes, title
from ssmlbench.boards.render.layout import layout_section
from ssmlbench.boards.render.numbers import NumberStyle
from ssmlbench.boards.report.figures import render
from ssmlbench.boards.report.inline_svg import for_page
from ssmlbench.boards.report.provenance import listings
from ssmlbench.boards.report.sections import FigureSection, styles_of
from ssmlbench.boards.report.series import Series, quality_metric
from ssmlbench.boards.report.style import settings
from ssmlbench.boards.report.text import clean
from ssmlbench.runs.finished import Finished

LABELLED, BOTH = "labelled", "both"
"""The training rows of a row, as values of the page's filter."""


@dataclass(frozen=True)
class Heading:
    """One heading of a column."""

    text: str
    first_sort: str  # the direction in which a first click sorts
    dataset: str = ""  # of a column that belongs to one data set of several


@dataclass(frozen=True)
class LeaderRow:
    """One row: its cells, and the values for the page's filters."""

    method: str
    tier: str  # LABELLED, BOTH, or empty where its runs did not record it
    cells: Sequence[Entry]


@dataclass(frozen=True)
class LeaderTable:
    """One sortable table of a leaderboard."""

    caption: str
    headings: Sequence[Heading]
    rows: Sequence[LeaderRow]
    spans: Sequence[
        tuple[str, int, str]
    ] = ()  # headings over several columns: text, count, data set
    compact: bool = False  # narrow columns


def leader_tables(board: Board) -> list[LeaderTable]:
    """Return the board's tables as `compare` shows them."""
    section = boards_document([board]).sections[0]
    several = len(section.panels) > 1
    return [
        LeaderTable(
            f"{section.title} · {panel.title}" if several else section.title,
            [Heading(text, _first_sort(text)) for text in panel.headers],
            [
                LeaderRow(row.name, _tier(row), cells)
                for row, cells in zip(board.rows, panel.rows, strict=True)
            ],
        )
        for panel in section.panels
    ]


def summary_tables(boards: Sequence[Board], query: Query) -> list[LeaderTable]:
    """Return methods × data sets in the metric of quality, a table for each regime, the largest first."""
    metric = quality_metric(query)
    main = [
        replace(board, metrics=[metric])
        for board in boards
        if not board.separate_reason and metric in board.metrics
    ]
    tables = sorted(layout_tables(main, SETS), key=lambda table: -len(table.rows))
    return [_summary(table, metric) for table in tables]


def _summary(table: LayoutTable, metric: Column) -> LeaderTable:
    section = layout_section(table, NumberStyle(3, spread=False))
    panel = section.panels[0]
    tiers = {row.name: _tier(row) for board in table.boards for row in board.rows}
    arrow = "↑" if metric.higher_is_better else "↓"
    datasets = ["", *(column.board.dataset for column in table.columns)]
    headings = [
        Heading(text, _first_sort(arrow if dataset else text), dataset)
        for text, dataset in itertools.zip_longest(panel.headers, datasets, fillvalue="")
    ]
    spans, start = [], 0
    for text, count in panel.spans:
        spans.append((text, count, headings[start].dataset))
        start += count
    rows = [
        LeaderRow(name, tiers[name], cells)
        for name, cells in zip(table.rows, panel.rows, strict=True)
    ]
    return LeaderTable(section.title, headings, rows, spans, compact=True)


def _tier(row: BoardRow) -> str:
    return {"labelled rows": LABELLED, "both pools": BOTH}.get(row.uses, "")


def _first_sort(header: str) -> str:
    """Best first: downwards where more is better."""
    return "descending" if "↑" in header or header == "seeds" else "ascending"


def html_page(boards: Sequence[Board], sections: Sequence[FigureSection], query: Query) -> str:
    """Return the whole page. Every name in it is escaped by the template."""
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
    with settings():
        return environment.from_string(template).render(
            policy=(
                f"default-src 'none'; style-src '{_digest(css)}'; script-src '{_digest(script)}'; "
                "base-uri 'none'; form-action 'none'"
            ),
            css=Markup(css),
            script=Markup(script),
            version=ssmlbench.__version__,
            facts=facts(boards, runs, query),
            summaries=summary_tables(boards, query),
            datasets=sorted({board.dataset for board in boards}),
            boards=[
                {
                    "dataset": board.dataset,
                    "title": title(board),
                    "separate_reason": board.separate_reason,
                    "tables": leader_tables(board),
                    "notes": footnotes(board),
                }
                for board in boards
            ],
            sections=[section for section in sections if section.groups or section.notes],
            listings=listings(runs),
            drawing=drawing,
        )


def runs_of(boards: Sequence[Board]) -> list[Finished]:
    """Return the runs of all boards."""
    return [run for board in boards for run in board.runs]


def facts(boards: Sequence[Board], runs: Sequence[Finished], query: Query) -> list[tuple[str, str]]:
    """Return the facts at the top of the page, as names and values."""
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
