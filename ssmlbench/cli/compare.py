"""`ssmlbench compare`: the leaderboards of the finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ssmlbench.cli.options import ResultsFolders, one_of, typed_list, wide_console
from ssmlbench.errors import UserError


def compare(
    results: ResultsFolders = None,
    dataset: Annotated[str | None, typer.Option(help="Only these data sets.")] = None,
    pi: Annotated[str | None, typer.Option(help="Only these π.")] = None,
    regime: Annotated[str | None, typer.Option(help="Only these regimes.")] = None,
    method: Annotated[str | None, typer.Option(help="Only these methods.")] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="micro_f1, macro_f1, map, hamming, one_loss, seconds_per_epoch, peak_memory_mb."
        ),
    ] = None,
    decision: Annotated[
        str, typer.Option(help="calibrated, threshold, or top-k‡ (the papers' oracle rule).")
    ] = "calibrated",
    selection: Annotated[str | None, typer.Option(help="Only runs with this selection.")] = None,
    convention: Annotated[
        str,
        typer.Option(help="default, or released (empty labels count 0, ties favour the model)."),
    ] = "default",
    format_: Annotated[
        str, typer.Option("--format", help="table, markdown, latex, csv, json.")
    ] = "table",
) -> None:
    """The leaderboard of the finished runs: five metrics, mean ± std over seeds."""
    from ssmlbench.leaderboard import Query, build_boards
    from ssmlbench.metrics import METRICS
    from ssmlbench.render import FORMATS, print_boards
    from ssmlbench.store import read_finished

    one_of(format_, ("table", *FORMATS), "--format")
    one_of(convention, ("default", "released"), "--convention")
    query = Query(
        datasets=typed_list(dataset, str, "--dataset"),
        regimes=typed_list(regime, str, "--regime"),
        pis=typed_list(pi, float, "--pi"),
        methods=typed_list(method, str, "--method"),
        selections=typed_list(selection, str, "--selection"),
        metrics=typed_list(metric, str, "--metric") or tuple(METRICS),
        decision=decision,
        convention=convention,
    )
    runs, complaints = read_finished(results or [Path("results")])
    for complaint in complaints:
        Console(stderr=True).print(f"warning: {complaint}", highlight=False, soft_wrap=True)
    boards = build_boards(runs, query)
    if not boards:
        raise UserError(
            f"none of the {len(runs)} finished runs fits; `ssmlbench run` makes more"
            if runs
            else "no finished run here yet; `ssmlbench run` makes one"
        )
    print_boards(boards, format_, wide_console())
