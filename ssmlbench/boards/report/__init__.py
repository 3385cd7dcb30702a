"""The report of finished runs: one HTML page, or its figures as files. It reads results, never torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ssmlbench.boards.board import Board
from ssmlbench.boards.query import Query
from ssmlbench.core.errors import UserError
from ssmlbench.core.files import check_output, write_output

FIGURE_FORMATS = ("pdf", "png", "svg")
FIGURE_KINDS = ("quality", "ranks", "pseudo", "training", "cost", "analyses")
"""Metrics over π, rank diagrams, pseudo-labels, training curves, cost against quality, analyses."""

PAGE_ENDINGS = (".html", ".htm")


def write_report(boards: Sequence[Board], query: Query, file: Path) -> None:
    """Write the HTML page; on an error the old file, if any, stays as it was."""
    from ssmlbench.boards.report.html import html_page
    from ssmlbench.boards.report.sections import report_sections

    check_output(file, *PAGE_ENDINGS)
    _write(file, html_page(boards, report_sections(boards, query), query))


def write_figures(
    boards: Sequence[Board],
    query: Query,
    folder: Path,
    formats: Sequence[str],
    kinds: Sequence[str] = FIGURE_KINDS,
) -> list[Path]:
    """Write each figure of these kinds as a file of each format, named after what it shows."""
    from ssmlbench.boards.render.slugs import slugs
    from ssmlbench.boards.report.figures import render
    from ssmlbench.boards.report.sections import report_sections, styles_of

    sections = report_sections(boards, query, kinds)
    shown = [(s.key, series) for s in sections for series in s.series]
    if not shown:
        why = " ".join(note for section in sections for note in section.notes)
        raise UserError(f"no figure of {', '.join(kinds)} to draw. {why}".rstrip())
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder --out {folder}: {error.strerror}") from None
    names = slugs(f"{key} {series.where} {series.title}" for key, series in shown)
    styles = styles_of(boards)
    written = []
    for name, (_, series) in zip(names, shown, strict=True):
        for kind in formats:
            file = folder / f"{name}.{kind}"
            _write(file, render(series, styles, kind))
            written.append(file)
    return written


def _write(file: Path, content: str | bytes) -> None:
    try:
        write_output(file, content)
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}; choose another --out") from None
