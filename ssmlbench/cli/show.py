"""`ssmlbench show`: one finished run, label by label."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ssmlbench.cli.options import ResultsFolders, wide_console
from ssmlbench.core.errors import UserError


def show(
    run: Annotated[str, typer.Argument(help="Hash of a finished run, its start, or its folder.")],
    results: ResultsFolders = None,
    sort: Annotated[
        str, typer.Option(help="Order of the labels: support, f1, average_precision, label, …")
    ] = "support",
) -> None:
    """Show the metrics of a finished run, and support, precision, recall, F1 and AP of each label."""
    from ssmlbench.core.suggestions import one_of
    from ssmlbench.protocol.metrics import METRICS
    from ssmlbench.runs.choose import run_folder
    from ssmlbench.runs.finished import Unreadable, read_result
    from ssmlbench.runs.folder import RunFolder
    from ssmlbench.runs.run_result import RunResult

    found = read_result(run_folder(run, results or [Path("results")]))
    if isinstance(found, Unreadable):
        raise UserError(str(found))
    result, console = RunResult(found), wide_console()
    console.print(f"{result.spec}  ({found.spec.hash})", highlight=False, markup=False)
    console.print(str(found.folder), highlight=False, markup=False, soft_wrap=True)
    for key, value in result.metrics().items():
        console.print(f"  {METRICS[key].title:14} {value:.4f}", highlight=False)
    for note in result.notes:
        console.print(f"  note: {note}", highlight=False, markup=False, soft_wrap=True)
    weights = RunFolder(found.folder).weights_file
    kept = f"kept, {weights.stat().st_size / 2**20:.1f} MB" if weights.is_file() else "not kept"
    console.print(f"  model: {kept}", highlight=False)
    if result.spec.judged_on == "nothing":
        console.print(
            "  it learnt from every labelled row, and was judged on none", highlight=False
        )
        return
    frame = result.per_label().reset_index()
    one_of(sort, tuple(frame.columns), "--sort")
    table = Table(title=f"by label ({found.result['per_label']['rule']})", title_justify="left")
    for column in frame.columns:
        table.add_column(column.replace("_", " "), justify="left" if column == "label" else "right")
    for record in frame.sort_values(sort, ascending=sort == "label").itertuples(index=False):
        table.add_row(*(_text(value) for value in record))
    console.print(table)


def _text(value: object) -> str:
    if isinstance(value, float):
        return "–" if math.isnan(value) else f"{value:.4f}"
    return str(value)
