"""Boards and sections → one HTML page that needs nothing else: no network, no file beside it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import ssmlbench
from ssmlbench.boards.board import Board
from ssmlbench.boards.query import Query
from ssmlbench.boards.render import Entry, boards_document, footnotes, title
from ssmlbench.boards.report.figures import render
from ssmlbench.boards.report.inline_svg import for_page
from ssmlbench.boards.report.provenance import listings
from ssmlbench.boards.report.sections import FigureSection, styles_of
from ssmlbench.boards.report.series import Series
from ssmlbench.boards.report.text import clean
from ssmlbench.runs.finished import Finished


@dataclass(frozen=True)
class LeaderTable:
    """One sortable table of a leaderboard."""

    caption: str
    headers: Sequence[tuple[str, str]]  # with the direction in which a first click sorts
    rows: Sequence[Sequence[Entry]]


def leader_tables(board: Board) -> list[LeaderTable]:
    """Return the board's tables as `compare` shows them."""
    section = boards_document([board]).sections[0]
    several = len(board.levels) > 1
    names = [f"{section.title} · {m.title}" for m in board.metrics] if several else [section.title]
    if len(section.panels) > len(names):
        names.append(f"{section.title} · difference")
    return [
        LeaderTable(name, [(text, _first_sort(text)) for text in panel.headers], panel.rows)
        for name, panel in zip(names, section.panels, strict=True)
    ]


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
                "separate_reason": board.separate_reason,
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
    """Return the runs of all boards."""
    return [run for board in boards for run in board.runs]


def facts(boards: Sequence[Board], runs: Sequence[Finished], query: Query) -> list[tuple[str, str]]:
    """Return what the page covers, as names and values."""
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
