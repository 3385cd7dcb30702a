"""`ssmlbench runs`: list the runs of a results folder, show one, delete some, evaluate scores again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.cells import cell_len, set_cell_size

from ssmlbench.cli.completion import complete_dataset, complete_method
from ssmlbench.cli.options import ResultsFolders, read_runs, typed_list, warn, wide_console
from ssmlbench.cli.show import metrics_table, show
from ssmlbench.core.console import Console
from ssmlbench.core.counts import counted
from ssmlbench.core.errors import UserError, disk_error
from ssmlbench.core.plain_text import printable
from ssmlbench.core.suggestions import one_of, values_without_runs

if TYPE_CHECKING:
    from ssmlbench.grid.status import RunState
    from ssmlbench.runs.finished import Finished

UNREADABLE = "unreadable"
"""The state of a run whose result is damaged or of a version that is not read; a warning says which."""
NARROWEST = 8
"""The least width of a column that is cut to fit a terminal."""

runs_app = typer.Typer(no_args_is_help=True, help="The runs of a results folder, one by one.")


@runs_app.command("list")
def list_runs(
    results: ResultsFolders = None,
    method: Annotated[
        str | None, typer.Option(help="Only these methods.", autocompletion=complete_method)
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Only these data sets.", autocompletion=complete_dataset)
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(help="Only these states: running, queued, failed, stopped, done, unreadable."),
    ] = None,
) -> None:
    """List runs with their ids."""
    from ssmlbench.grid.status import STATES

    methods = typed_list(method, str, "--method")
    datasets = typed_list(dataset, str, "--dataset")
    states = typed_list(state, str, "--state")
    for one_state in states:
        one_of(one_state, (*STATES, UNREADABLE), "--state")
    every = _states(results)
    values = {run.folder: run for run in read_runs(_folders(results))}
    every = [
        replace(one, state=UNREADABLE) if one.state == "done" and one.folder not in values else one
        for one in every
    ]
    chosen = [
        one
        for one in every
        if (not methods or _method(one) in methods)
        and (not datasets or one.dataset in datasets)
        and (not states or one.state in states)
    ]
    unmet = values_without_runs("--method", methods, map(_method, chosen), map(_method, every))
    of_chosen, of_every = ((one.dataset for one in some) for some in (chosen, every))
    unmet += values_without_runs("--dataset", datasets, of_chosen, of_every)
    if unmet and not chosen:
        raise UserError("; ".join(unmet))
    warn(unmet)
    columns = ("id", "method", "data set", "regime", "seed", "state", "mAP")
    rows = [
        (one.hash[:8], one.method, one.dataset, one.regime, one.seed, one.state, found)
        for one, found in ((one, _map(values.get(one.folder))) for one in chosen)
    ]
    typer.echo("\n".join([*_aligned((columns, *rows)), counted(len(chosen), "run")]))


def _method(state: RunState) -> str:
    return state.method.split(" ")[0].split("[")[0]


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines with aligned columns, fast for 100,000 of them.

    If a terminal is too narrow, the longest column is cut, and then the line.
    """
    cells = [list(map(printable, row)) for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    console = wide_console()
    if console.is_terminal and (over := sum(widths) + 2 * len(widths) - 2 - console.width) > 0:
        longest = widths.index(max(widths))
        widths[longest] = max(NARROWEST, widths[longest] - over)
    for row in cells:
        line = "  ".join(map(set_cell_size, row, widths)).rstrip()
        yield set_cell_size(line, console.width).rstrip() if console.is_terminal else line


runs_app.command("show", help="The same as `ssmlbench show`: one run, in any state.")(show)


@runs_app.command("delete")
def delete_runs(
    runs: Annotated[list[str] | None, typer.Argument(help="Run ids, or their beginnings.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="All failed runs.")] = False,
    results: ResultsFolders = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete runs and all their files; the same `ssmlbench run` repeats them."""
    from ssmlbench.runs.folder import RunFolder

    states = _states(results)
    chosen = _named(runs or (), states, _folders(results))
    chosen += [state for state in states if failed and state.state == "failed"]
    chosen = list({state.folder: state for state in chosen}.values())
    if failed and not chosen:
        raise UserError("--failed: there is no failed run")
    if not chosen:
        raise UserError("no run is named; e.g. ssmlbench runs delete 3f2a91c0, or --failed")
    if busy := [state for state in chosen if state.state == "running"]:
        raise UserError(f"run {busy[0].hash[:8]} is being made; stop it before it is deleted")
    for state in chosen:
        _print(f"{state.hash[:8]}  {state.method} {state.dataset} {state.regime} seed {state.seed}")
    if not yes and not _confirmed(f"delete {counted(len(chosen), 'run')}?"):
        raise typer.Exit(1)
    kept = [state for state in chosen if not RunFolder(state.folder).delete()]
    _print(f"deleted {counted(len(chosen) - len(kept), 'run')}")
    if kept:  # begun while this command asked
        raise UserError(f"run {kept[0].hash[:8]} is being made; stop it before it is deleted")


@runs_app.command("evaluate")
def evaluate_runs(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Run ids; all finished runs if none is given.")
    ] = None,
    results: ResultsFolders = None,
) -> None:
    """Compute the metrics again from the stored scores, and compare them with the stored ones."""
    from ssmlbench.protocol.metrics import evaluate_rules
    from ssmlbench.runs.scores import StoredScores

    finished = [run for run in read_runs(_folders(results)) if not run.diverged]
    if runs:
        hashes = {one.hash for one in _named(runs, _states(results), _folders(results))}
        finished = [run for run in finished if run.spec.hash in hashes]
    different = unread = 0
    for run in finished:
        try:
            stored = StoredScores.read(run.folder)
        except (OSError, ValueError) as error:
            reason = (disk_error(error) if isinstance(error, OSError) else None) or error
            _print(f"{run.spec.hash[:8]}  {run.spec}: its scores cannot be read: {reason}")
            unread += 1
            continue
        again = evaluate_rules(stored.scores, stored.truth, stored.parameters)
        if changes := list(_differences(run.result["metrics"], again)):
            different += 1
            _print(f"{run.spec.hash[:8]}  {run.spec}: differs: {'; '.join(changes[:3])}")
        if runs:
            wide_console().print(metrics_table(again))
    others = f"; {unread} could not be evaluated" if unread else ""
    evaluated = len(finished) - unread
    _print(f"{evaluated} runs evaluated again, {different} differ from what they stored{others}")
    if different or unread:
        raise typer.Exit(2)


def _differences(stored: Any, again: Any) -> list[str]:
    """The stored values that differ from the recomputed ones, by rule, convention and metric."""
    from ssmlbench.runs.schema import metric_entries

    present = dict(metric_entries(again))
    return [
        f"{metric} ({rule}, {convention}) {value:.6f}, now {now:.6f}"
        for (rule, convention, metric), value in metric_entries(stored)
        if (now := present.get((rule, convention, metric))) is not None and abs(now - value) > 1e-9
    ]


def _map(run: Finished | None) -> str:
    if run is None or run.diverged:
        return ""
    rules = run.result["metrics"].values()  # mAP is the same under all
    found = (rule.get("default", {}).get("map") for rule in rules)
    value = next((one for one in found if one is not None), None)
    return "" if value is None else f"{value:.4f}"


def _states(results: list[Path] | None) -> list[RunState]:
    from ssmlbench.grid.status import read_states

    return list(read_states(_folders(results)))


def _folders(results: list[Path] | None) -> list[Path]:
    return results or [Path("results")]


def _confirmed(question: str) -> bool:
    """Whether the user answers yes; without an answer it is an error, and Ctrl-C is Ctrl-C."""
    try:
        return typer.confirm(question)
    except typer.Abort as ended:
        if isinstance(ended.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise UserError("there was no answer, so nothing is deleted; add --yes") from None


def _named(texts: Sequence[str], states: Sequence[RunState], folders: list[Path]) -> list[RunState]:
    """The runs that are named by ids, their beginnings or folders."""
    from ssmlbench.runs.choose import named_run

    by_folder = {state.folder: state for state in states}
    known = [(state.hash, state.folder) for state in states]
    return [by_folder[named_run(text, known, folders)] for text in texts]


def _print(line: str) -> None:
    Console().print_line(line)
