"""`ssmlbench tune`: the same number of trials for every method, judged on held-out labelled rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ssmlbench.cli.data_options import data_options, data_parameters
from ssmlbench.cli.dispatch import GridCommand, engine_parameters
from ssmlbench.cli.options import load_plugins
from ssmlbench.cli.run import command_of, specs_of
from ssmlbench.cli.run_options import RequestOptions, Where, in_panel, run_parameters, with_options
from ssmlbench.core.errors import UserError
from ssmlbench.core.run_options import WHAT, WHERE

if TYPE_CHECKING:
    from ssmlbench.grid.study import Record, Study

MOST_TRIALS = 10_000
"""The most trials of a study: all are planned before the first one starts."""


@with_options(
    typed=run_parameters(without=("seed",)),
    source=RequestOptions,
    own=data_parameters(),
    where=Where,
    engine=in_panel(engine_parameters(), WHERE),
)
def tune(
    trials: Annotated[
        int, typer.Option(help="Configurations drawn for every method.", rich_help_panel=WHAT)
    ],
    typed: dict[str, Any],
    source: RequestOptions,
    own: dict[str, Any],
    where: Where,
    engine: dict[str, Any],
    seed: Annotated[
        int,
        typer.Option(help="Draws the labelled rows and the configurations.", rich_help_panel=WHAT),
    ] = 0,
) -> None:
    """Draw configurations, train each, judge it on held-out labelled rows; `run --tuned` uses the best.

    Trial 0 is the default configuration. The test set is not opened.
    """
    from ssmlbench.grid.study import Study, close, held_out_note, trials_root

    if not 1 <= trials <= MOST_TRIALS:
        raise UserError(f"--trials {trials}: must be 1 to {MOST_TRIALS:,}, e.g. --trials 20")
    results = where.results
    request = source.request({**typed, "seed": (seed,)})
    command = command_of(where, engine, trials_root(results))
    plugins = load_plugins([*request.plugins], data_options(own))
    bases = specs_of(
        request, plugins, source, command, check=lambda spec: Study.of(spec, plugins, trials)
    )
    studies = [Study.of(base, plugins, trials) for base in bases]
    for note in dict.fromkeys(held_out_note(base, plugins) for base in bases):
        if not command.quiet:
            command.console.print_line(note)
    try:
        command.make([spec for study in studies for spec in study.specs()], plugins)
    finally:  # some trials may have failed, or be on a cluster still: the other studies are closed
        if not command.dry_run:
            _print_studies([(study, close(study, results)) for study in studies], command)


def _print_studies(closed: list[tuple[Study, list[Record] | None]], command: GridCommand) -> None:
    """Print the winners of finished studies, and the number of unfinished ones, whose records are None."""
    finished = [(study, records) for study, records in closed if records]
    if finished and not command.quiet:
        command.console.print(_winners(finished))
        for line in _configurations(finished):
            command.console.print_line(line)
    if len(finished) < len(closed):
        command.console.print_line(
            f"{len(closed) - len(finished)} of {len(closed)} studies have unfinished trials; "
            "the same command continues from here"
        )


def _winners(closed: list[tuple[Study, list[Record]]]) -> Any:
    from rich.table import Table

    from ssmlbench.grid.study import winner

    table = Table(caption="mAP on held-out labelled rows; `ssmlbench run --tuned` uses the best")
    for column in ("method", "data set", "regime", "trials", "default", "best", "trial"):
        table.add_column(column)
    for study, records in closed:
        best, base = winner(records), study.base
        table.add_row(
            base.variant,
            base.dataset,
            base.regime_label,
            str(study.trials),
            "diverged" if records[0].diverged else f"{records[0].map:.4f}",
            f"{best.map:.4f}" if best else "all diverged",
            str(best.trial) if best else "",
        )
    return table


def _configurations(closed: list[tuple[Study, list[Record]]]) -> Iterator[str]:
    """A line for each winner: its whole configuration, drawn values first."""
    from ssmlbench.core.hyperparameters import as_typed
    from ssmlbench.grid.study import winner

    for study, records in closed:
        base, best = study.base, winner(records)
        if best is None:
            continue
        drawn = ", ".join(f"{name}={as_typed(value)}" for name, value in best.drawn.items())
        rest = {"lr": base.lr, **base.config}
        others = ", ".join(f"{n}={as_typed(v)}" for n, v in rest.items() if n not in best.drawn)
        parts = [f"drawn {drawn}" if drawn else "the default configuration"]
        parts += [f"not drawn {others}"] if others else []
        yield f"best of {base.variant} on {base.dataset} {base.regime_label}: {'; '.join(parts)}"
