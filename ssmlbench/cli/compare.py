"""`ssmlbench compare`: the leaderboards of the finished runs, and the papers' with --published."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ssmlbench.cli.board_options import BoardOptions, board_numbers
from ssmlbench.cli.options import warn, wide_console
from ssmlbench.cli.run_options import with_options
from ssmlbench.cli.table_options import TableOptions
from ssmlbench.core.console import Console
from ssmlbench.core.errors import UserError
from ssmlbench.core.suggestions import one_of

if TYPE_CHECKING:
    from ssmlbench.boards.board import Board
    from ssmlbench.boards.published import PublishedValue
    from ssmlbench.boards.query import Query
    from ssmlbench.boards.render import Document
    from ssmlbench.runs.finished import Finished


@with_options(options=BoardOptions, numbers=board_numbers(), table=TableOptions)
def compare(
    *,
    options: BoardOptions,
    numbers: dict[str, str | None],
    table: TableOptions,
    published: Annotated[
        bool, typer.Option("--published", help="The papers' numbers beside ours.")
    ] = False,
    papers: Annotated[
        list[Path] | None,
        typer.Option(
            help="A folder with tables of further papers, for --published (the default with it) or "
            "--audit; may be repeated."
        ),
    ] = None,
    audit: Annotated[
        bool,
        typer.Option("--audit", help="Which decision rule fits the papers' F1 and Hamming loss."),
    ] = False,
    stats: Annotated[
        bool, typer.Option("--stats", help="Average ranks, Friedman, Nemenyi, Wilcoxon-Holm.")
    ] = False,
    over: Annotated[
        str, typer.Option(help="What --stats tests over: cells (data set × π), or seeds of a cell.")
    ] = "cells",
    bootstrap: Annotated[
        int, typer.Option(help="95 % intervals over test rows from this many draws, e.g. 1000.")
    ] = 0,
    baseline: Annotated[
        str,
        typer.Option(
            help="Row that others are compared with, paired by seed: auto (the best that uses labelled "
            "rows only), none, or a row's name."
        ),
    ] = "auto",
    format_: Annotated[
        str, typer.Option("--format", help="table, markdown, latex, html, csv, json.")
    ] = "table",
    export: Annotated[
        Path | None,
        typer.Option(help="Write the runs to <folder>/<data set>.csv, with their provenance."),
    ] = None,
) -> None:
    """Print the leaderboards of the finished runs: five metrics, mean ± std over seeds."""
    from ssmlbench.boards.build import build_boards
    from ssmlbench.boards.layout import SETS
    from ssmlbench.boards.render import print_document

    _check_choices(table, format_, over, audit)
    shaping = {"--stats": stats, "--bootstrap": bootstrap, "--baseline": baseline != "auto"}
    other = {"--published": published, "--papers": papers, "--format": format_ != "table"}
    if export:
        tables = {"--layout and the like": table != TableOptions()}
        _check_unread("--export", {"--audit": audit, **shaping, **other, **tables})
    if audit:
        _check_unread("--audit", {**shaping, "--published": published})
    if over != "cells" and not stats:
        raise UserError(f"--over {over} is for --stats, which is not given")
    latex = table.latex(format_)
    published = published or (bool(papers) and not audit)
    if table.layout == SETS and options.metric is None:
        options = dataclasses.replace(options, metric="map")
    query = options.query(numbers, "top-k" if published else "calibrated", bootstrap, baseline)
    if audit:
        print_document(_audit(query, papers or ()), format_, wide_console(), latex)
        return
    runs = options.runs(may_be_none=published)
    if export:
        _export(runs, query, export)
        return
    boards = build_boards(runs, query)
    if not published:
        if not boards:
            raise query.unfit(runs)
        warn(query.unmet(runs))
    document = _tables(boards, table, query, (papers or ()) if published else None)
    if stats:
        document.add(_statistics(boards, query, over))
    print_document(document, format_, wide_console(), latex)


def _check_choices(table: TableOptions, format_: str, over: str, audit: bool) -> None:
    """Raise a UserError for a name that does not exist, and for options that --audit does not take."""
    from ssmlbench.boards.layout import LAYOUTS
    from ssmlbench.boards.render import TEXT_FORMATS

    one_of(table.layout, LAYOUTS, "--layout")
    one_of(format_, ("table", *TEXT_FORMATS), "--format")
    one_of(over, ("cells", "seeds"), "--over")
    only_latex = TableOptions(align=table.align, caption=table.caption, label=table.label)
    if audit and table != only_latex:
        raise UserError(
            "--layout, --digits, --percent, --display-names and --rename change numbers and names; --audit "
            "shows them as papers print them: leave them out"
        )


def _check_unread(mode: str, given: Mapping[str, object]) -> None:
    """Raise a UserError for an option that this kind of output does not read."""
    for option, value in given.items():
        if value:
            raise UserError(f"{option} changes nothing in what {mode} gives; leave one of them out")


def _tables(
    boards: list[Board], table: TableOptions, query: Query, papers: Sequence[Path] | None
) -> Document:
    """The boards, beside the papers' numbers unless `papers` is None."""
    from ssmlbench.boards.render import table_document
    from ssmlbench.boards.render.published import published_document

    style = (table.layout, table.numbers, table.names)
    if papers is None:
        return table_document(boards, *style)
    return published_document(boards, query, papers, *style)


def _export(runs: list[Finished], query: Query, folder: Path) -> None:
    from ssmlbench.boards.build import shown_runs
    from ssmlbench.boards.csv_files import export
    from ssmlbench.boards.versions import Versions

    versions = Versions.of(runs)
    versions.check(query.versions, runs)
    chosen = shown_runs(runs, query, versions)
    if not chosen:
        raise query.unfit(runs)
    warn(query.unmet(runs))
    for file in export(chosen, folder, shlex.join(["ssmlbench", *sys.argv[1:]]), versions):
        Console().print_line(f"wrote {file}")
    if hidden := sum(query.wants(run.spec) for run in runs) - len(chosen):
        warn([f"{hidden} runs of older code are left out; --versions all writes them too"])


def _audit(query: Query, papers: Sequence[Path]) -> Document:
    from ssmlbench.boards.published import is_method, read_published
    from ssmlbench.boards.render.rule_audit import audit_document
    from ssmlbench.boards.rule_audit import audit_rules, find_misprints
    from ssmlbench.boards.source_audit import find_disagreements

    values = read_published(papers)
    rows = audit_rules(values)  # before the filters: rows imply each other's density
    misprints = find_misprints(values, rows)

    def wanted(value: PublishedValue) -> bool:
        return (not query.datasets or value.dataset in query.datasets) and (
            not query.methods or is_method(value, query.methods)
        )

    rows = [row for row in rows if wanted(row.first)]
    differing = [row for row in find_disagreements(values) if wanted(row.first)]
    if not rows and not differing:
        raise UserError(
            "--audit: no published row with Micro-F1 and Hamming loss fits, nor one that two sources print "
            "differently; leave --dataset or --method out to see all"
        )
    return audit_document(rows, [m for m in misprints if wanted(m.value)], differing)


def _statistics(boards: list[Board], query: Query, over: str) -> Document:
    from ssmlbench.boards.columns import COLUMNS
    from ssmlbench.boards.render.statistics import statistics_document
    from ssmlbench.boards.significance import blocks_over_cells, blocks_over_seeds

    gather = blocks_over_cells if over == "cells" else blocks_over_seeds
    return statistics_document(
        [blocks for key in query.metrics for blocks in gather(boards, COLUMNS[key])]
    )
