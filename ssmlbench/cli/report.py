"""`ssmlbench report` and `ssmlbench plot`: the finished runs as one HTML page, or as figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ssmlbench.cli.board_options import BoardOptions, board_numbers
from ssmlbench.cli.options import typed_list
from ssmlbench.cli.run_options import with_options
from ssmlbench.core.console import Console
from ssmlbench.core.counts import counted
from ssmlbench.core.files import check_folder, check_output
from ssmlbench.core.garbage import rare_collection
from ssmlbench.core.suggestions import one_of


@with_options(options=BoardOptions, numbers=board_numbers())
def report(
    *,
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    options: BoardOptions,
    numbers: dict[str, str | None],
) -> None:
    """Write one self-contained HTML page: leaderboards, figures, training curves, provenance."""
    with rare_collection():
        from ssmlbench.boards.report import PAGE_ENDINGS, write_report

        check_output(out, *PAGE_ENDINGS)
        query = options.query(numbers)
        boards = options.boards(query)
        with Console(stderr=True).status("drawing the figures"):
            write_report(boards, query, out)
    Console().print_line(f"{out}: {counted(sum(len(board.runs) for board in boards), 'run')}")


@with_options(options=BoardOptions, numbers=board_numbers())
def plot(
    *,
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("figures"),
    format_: Annotated[str, typer.Option("--format", help="pdf, png, svg, or several.")] = "pdf",
    figure: Annotated[
        str | None,
        typer.Option(
            help="Only these kinds: quality (metrics over π), ranks (critical differences), pseudo "
            "(pseudo-labels), training (curves), cost, analyses; or several.",
            show_default="all",
        ),
    ] = None,
    options: BoardOptions,
    numbers: dict[str, str | None],
) -> None:
    """Write the report's figures as files for a paper, one for each panel."""
    from ssmlbench.boards.report import FIGURE_FORMATS, FIGURE_KINDS, write_figures

    formats = tuple(dict.fromkeys(typed_list(format_, str, "--format")))
    for kind in formats:
        one_of(kind, FIGURE_FORMATS, "--format")
    kinds = typed_list(figure, str, "--figure") or FIGURE_KINDS
    for kind in kinds:
        one_of(kind, FIGURE_KINDS, "--figure")
    check_folder(out, "--out")
    query = options.query(numbers)
    with rare_collection():
        boards = options.boards(query)
        with Console(stderr=True).status("drawing the figures"):
            written = write_figures(boards, query, out, formats, kinds)
    Console().print_line(f"{out}: {counted(len(written), 'file')}")
