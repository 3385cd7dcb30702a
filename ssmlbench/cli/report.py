"""`ssmlbench report` and `ssmlbench plot`: the finished runs as one HTML page, or as figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ssmlbench.cli.options import (
    Convention,
    Decision,
    OnlyDatasets,
    OnlyMethods,
    OnlyMetrics,
    OnlyRegimes,
    OnlySelections,
    ResultsFolders,
    read_boards,
    read_query,
    typed_list,
)
from ssmlbench.cli.run_options import number_parameters, with_options
from ssmlbench.core.errors import UserError


@with_options(numbers=number_parameters())
def report(
    *,
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    results: ResultsFolders = None,
    dataset: OnlyDatasets = None,
    numbers: dict[str, str | None],
    regime: OnlyRegimes = None,
    method: OnlyMethods = None,
    metric: OnlyMetrics = None,
    decision: Decision = "calibrated",
    selection: OnlySelections = None,
    convention: Convention = "default",
) -> None:
    """One self-contained HTML page: leaderboards, figures, training curves, provenance."""
    from ssmlbench.boards.report import write_report

    query = read_query(
        dataset=dataset,
        numbers=numbers,
        regime=regime,
        method=method,
        metric=metric,
        decision=decision,
        selection=selection,
        convention=convention,
    )
    boards = read_boards(results, query)
    with Console(stderr=True).status("drawing the figures"):
        write_report(boards, query, out)
    typer.echo(f"{out}: {sum(len(board.runs) for board in boards)} runs")


@with_options(numbers=number_parameters())
def plot(
    *,
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("figures"),
    format_: Annotated[str, typer.Option("--format", help="pdf, png, svg, or several.")] = "pdf",
    results: ResultsFolders = None,
    dataset: OnlyDatasets = None,
    numbers: dict[str, str | None],
    regime: OnlyRegimes = None,
    method: OnlyMethods = None,
    metric: OnlyMetrics = None,
    decision: Decision = "calibrated",
    selection: OnlySelections = None,
    convention: Convention = "default",
) -> None:
    """The report's figures as files for a paper, one a panel."""
    from ssmlbench.boards.report import FIGURE_FORMATS, write_figures
    from ssmlbench.core.suggestions import did_you_mean

    formats = tuple(dict.fromkeys(typed_list(format_, str, "--format")))
    for kind in formats:
        if kind not in FIGURE_FORMATS:
            raise UserError(f"--format {kind}: no such format.{did_you_mean(kind, FIGURE_FORMATS)}")
    query = read_query(
        dataset=dataset,
        numbers=numbers,
        regime=regime,
        method=method,
        metric=metric,
        decision=decision,
        selection=selection,
        convention=convention,
    )
    boards = read_boards(results, query)
    with Console(stderr=True).status("drawing the figures"):
        written = write_figures(boards, query, out, formats)
    typer.echo(f"{out}: {len(written)} files")
