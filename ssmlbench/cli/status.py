"""`ssmlbench status`: the runs that are queued, running, done or failed, from the results folder."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ssmlbench.cli.options import ResultsFolders, wide_console
from ssmlbench.core.commands import suggested
from ssmlbench.core.console import Console
from ssmlbench.core.counts import counted
from ssmlbench.core.errors import UserError
from ssmlbench.core.eta import duration
from ssmlbench.core.plain_text import printable
from ssmlbench.core.suggestions import one_of

if TYPE_CHECKING:
    from ssmlbench.grid.status import RunState

WATCH_SECONDS = 2.0
SHOWN = 40
"""The most runs of one state that are listed; the others are only counted."""


def status(
    results: ResultsFolders = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until nothing runs.")] = False,
    failed: Annotated[
        bool, typer.Option("--failed", help="The errors of failed runs in full.")
    ] = False,
    format_: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
) -> None:
    """Show which runs are queued, running, done and failed, on any machine."""
    from ssmlbench.grid.status import read_states

    one_of(format_, ("table", "json"), "--format")
    if sum((watch, failed, format_ == "json")) > 1:
        raise UserError("--watch, --failed and --format json each show something else; keep one")
    folders = results or [Path("results")]
    console = wide_console()
    if watch:
        _watch(folders, console)
        return
    states = read_states(folders)
    if format_ == "json":
        typer.echo(json.dumps([state.as_dict() for state in states], indent=2))
    elif failed:
        _print_errors([state for state in states if state.state == "failed"], console)
    else:
        console.print(page(states))


def _watch(folders: Sequence[Path], console: Console) -> None:
    from rich.live import Live

    from ssmlbench.grid.status import read_states

    states = read_states(folders)
    with Live(page(states), console=console, auto_refresh=False) as live:
        while any(state.state in ("running", "queued") for state in states):
            time.sleep(WATCH_SECONDS)
            states = read_states(folders)
            live.update(page(states), refresh=True)


def page(states: Sequence[RunState]) -> RenderableType:
    """The counts of every data set and regime, and below them the runs that are not done."""
    from ssmlbench.grid.status import STATES

    if not states:
        return Text("no run here yet; `ssmlbench run` makes one")
    table = Table(title=totals(states), title_justify="left")
    for column in ("data set", "regime"):
        table.add_column(column)
    shown = [name for name in STATES if any(state.state == name for state in states)]
    for column in shown:
        table.add_column(column, justify="right")
    counts = Counter((state.dataset, state.regime, state.state) for state in states)
    for dataset, regime in sorted({(state.dataset, state.regime) for state in states}):
        numbers = (str(counts[dataset, regime, name]) for name in shown)
        table.add_row(_cell(dataset), _cell(regime), *numbers)
    parts: list[RenderableType] = [table]
    parts += [
        _listed(name, [state for state in states if state.state == name])
        for name in shown
        if name != "done"
    ]
    unreadable = Counter(state.note for state in states if state.note)
    for note, count in unreadable.items():
        runs = counted(count, "run")
        parts.append(_cell(f"{runs} with a spec that cannot be read, shown by folder name; {note}"))
    return Group(*parts)


def totals(states: Sequence[RunState]) -> str:
    """The number of runs in each state, in one line."""
    from ssmlbench.grid.status import STATES

    counts = Counter(state.state for state in states)
    parts = [f"{counts[name]} {name}" for name in reversed(STATES) if counts[name]]
    return f"{counted(len(states), 'run')}: {', '.join(parts)}"


def _listed(name: str, states: Sequence[RunState]) -> Table:
    table = Table(title=name, title_justify="left")
    for column in ("method", "data set", "regime", "seed", "epoch"):
        table.add_column(column, overflow="fold")
    last = {"running": ("ETA", "where"), "failed": ("tries", "error")}.get(name, ("where",))
    for column in last:
        table.add_column(column, overflow="fold")
    for state in states[:SHOWN]:
        more: tuple[str, ...]
        if name == "running":
            more = (duration(state.eta), state.where)
        elif name == "failed":
            more = (str(state.attempts), next(iter(state.error.splitlines()), ""))
        else:
            more = (state.where,)
        first = (state.method, state.dataset, state.regime, state.seed, _epoch(state))
        table.add_row(*map(_cell, (*first, *more)))
    if name == "failed":
        roots = list(dict.fromkeys(state.folder.parents[3] for state in states))
        shown = suggested("status", "--failed", results=roots)
        table.caption = f"`{shown}` shows the errors in full; the next run tries again"
    if len(states) > SHOWN:
        table.caption = f"… and {len(states) - SHOWN:,} more (--format json has them all)"
    table.caption_justify = "left"
    return table


def _cell(text: str) -> Text:
    """A text without markup and control characters."""
    return Text(printable(text))


def _epoch(state: RunState) -> str:
    if state.doing and state.doing != "training":
        return state.doing
    return f"{state.epoch}/{state.epochs}" if state.epochs else "-"


def _print_errors(states: Sequence[RunState], console: Console) -> None:
    if not states:
        console.print("no run has failed")
    for state in states:
        tries = f"{state.attempts} {'try' if state.attempts == 1 else 'tries'}"
        head = f"{state.method} {state.dataset} {state.regime} seed {state.seed}"
        lines = [f"{head}: {state.error}", f"  {tries}, on {state.where}, in {state.folder}"]
        lines += [f"  {line}" for line in state.traceback.rstrip().splitlines()]
        console.print(_cell("\n".join(lines)), soft_wrap=True)
