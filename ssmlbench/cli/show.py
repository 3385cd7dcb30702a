"""`ssmlbench show`: one run, its state, metrics and labels; `ssmlbench runs show` is the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ssmlbench.cli.options import ResultsFolders, wide_console
from ssmlbench.core.commands import suggested
from ssmlbench.core.console import Console
from ssmlbench.core.errors import UserError
from ssmlbench.core.paths import from_home
from ssmlbench.core.plain_text import one_line
from ssmlbench.core.suggestions import one_of

if TYPE_CHECKING:
    from ssmlbench.grid.status import RunState
    from ssmlbench.runs.finished import Finished


END_LABELS = 20
"""Labels that are printed from each end of the order, without `--all`."""


def show(
    run: Annotated[
        str,
        typer.Argument(help="A run's id as `ssmlbench runs list` shows it, or its folder."),
    ],
    results: ResultsFolders = None,
    sort: Annotated[
        str, typer.Option(help="Order of the labels: support, f1, average_precision, label, …")
    ] = "support",
    long: Annotated[bool, typer.Option("--long", help="Also every option of the run.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Every label; by default the first and last 20 of many.")
    ] = False,
) -> None:
    """Show one run: its state; if it is finished, its metrics under every rule, and each label's."""
    from ssmlbench.grid.status import read_states
    from ssmlbench.runs.choose import named_run
    from ssmlbench.runs.finished import Unreadable, read_result
    from ssmlbench.runs.per_label import COLUMNS

    one_of(sort, COLUMNS, "--sort")
    console, roots = wide_console(), results or [Path("results")]
    folder = from_home(run)
    if not (folder / "result.json").is_file():
        states = {state.folder: state for state in read_states(roots)}
        folder = named_run(run, ((s.hash, s.folder) for s in states.values()), roots)
        if not (folder / "result.json").is_file():
            _print_unfinished(states[folder], console)
            return
    found = read_result(folder)
    if isinstance(found, Unreadable):
        raise UserError(str(found))
    _print_finished(found, console)
    if long:
        console.print(_options(found.spec.as_dict()), highlight=False)
    if not found.diverged:
        _print_metrics(found, sort, every, console)


def _print_unfinished(state: RunState, console: Console) -> None:
    line = f"{state.method} {state.dataset} {state.regime} seed {state.seed}  ({state.hash})"
    console.print_line(line)
    console.print_line(str(state.folder))
    epoch = f", epoch {state.epoch} of {state.epochs}" if state.epochs else ""
    error = f": {one_line(state.error)}" if state.error else ""
    console.print_line(f"  state: {state.state}{epoch}{error}")
    if state.traceback:
        more = suggested("status", results=state.folder.parents[3])
        console.print_line(f"  `{more}` has more; the traceback is in {state.folder}")


def _print_finished(run: Finished, console: Console) -> None:
    from ssmlbench.runs.folder import RunFolder

    console.print_line(f"{run.spec}  ({run.spec.hash})")
    console.print_line(str(run.folder))
    state = "diverged, without scores" if run.diverged else "finished"
    console.print_line(f"  state: {state} {run.finished_at}".rstrip())
    for note in run.result.get("notes", ()):
        console.print_line(f"  note: {note}")
    weights = RunFolder(run.folder).weights_file
    kept = f"kept, {weights.stat().st_size / 2**20:.1f} MB" if weights.is_file() else "not kept"
    console.print_line(f"  model: {kept}")


def _options(spec: Mapping[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, value in spec.items():
        if value not in (None, "", (), [], {}):
            table.add_row(f"  {name}", str(value))
    return table


def _print_metrics(run: Finished, sort: str, every: bool, console: Console) -> None:
    """The metrics under each decision rule, then a row for each label, or the first and the last."""
    from ssmlbench.runs.run_result import RunResult

    if run.spec.judged_on == "nothing":
        console.print_line("  it learnt from every labelled row, and was judged on none")
        return
    console.print(metrics_table(run.result["metrics"]))
    if (per_label := run.per_label) is None:
        console.print_line("no results per label: it was made before they were stored")
        return
    frame = RunResult(run).per_label().reset_index()
    rule = per_label["rule"]
    table = Table(title=f"by label ({rule})", title_justify="left", box=None, pad_edge=False)
    for column in frame.columns:
        table.add_column(column.replace("_", " "), justify="left" if column == "label" else "right")
    ordered = frame.sort_values(sort, ascending=sort == "label", kind="stable")
    between = 0 if every else max(len(ordered) - 2 * END_LABELS, 0)
    for place, record in enumerate(ordered.itertuples(index=False)):
        if between and place == END_LABELS:
            table.add_row(f"… {between:,} more: --all")
        if not between or not END_LABELS <= place < len(ordered) - END_LABELS:
            table.add_row(*(_text(value) for value in record))
    console.print(table)


def metrics_table(metrics: Mapping[str, Any]) -> Table:
    """Decision rules × metrics."""
    from ssmlbench.protocol.metrics import METRICS

    names = list(dict.fromkeys(n for rule in metrics.values() for n in rule.get("default", {})))
    table = Table(box=None, pad_edge=False)
    table.add_column("decision")
    for name in names:
        table.add_column(METRICS[name].title if name in METRICS else name, justify="right")
    for rule, conventions in metrics.items():
        values = conventions.get("default", {})
        table.add_row(rule, *(f"{values[n]:.4f}" if n in values else "" for n in names))
    return table


def _text(value: object) -> str:
    if isinstance(value, float):
        return "–" if math.isnan(value) else f"{value:.4f}"
    return str(value)
