"""`ssmlbench run`: turns the options into run specs and dispatches them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ssmlbench.cli.data_options import data_options, data_parameters
from ssmlbench.cli.dispatch import GridCommand, engine_options, engine_parameters
from ssmlbench.cli.options import load_plugins, seconds
from ssmlbench.cli.run_options import RequestOptions, Where, in_panel, run_parameters, with_options
from ssmlbench.core.console import Console
from ssmlbench.core.errors import UserError
from ssmlbench.core.files import check_folder
from ssmlbench.core.run_options import WHAT, WHERE

if TYPE_CHECKING:
    from ssmlbench.core.spec import RunSpec
    from ssmlbench.data import DatasetAdapter
    from ssmlbench.grid.cached_grids import CachedGrid
    from ssmlbench.grid.request import GridRequest
    from ssmlbench.plugins.loader import Plugins


@with_options(
    typed=run_parameters(),
    source=RequestOptions,
    own=data_parameters(),
    where=Where,
    engine=in_panel(engine_parameters(), WHERE),
)
def run(
    typed: dict[str, Any],
    source: RequestOptions,
    own: dict[str, Any],
    where: Where,
    engine: dict[str, Any],
    seeds: Annotated[
        int | None, typer.Option(help="This many seeds: 0, 1, …", rich_help_panel=WHAT)
    ] = None,
    tuned: Annotated[
        bool,
        typer.Option(
            "--tuned",
            help="With the winners of `ssmlbench tune` of these cells.",
            rich_help_panel=WHAT,
        ),
    ] = False,
) -> None:
    """Train: one run, or every combination of the lists given. Finished runs are never made twice."""
    from ssmlbench.grid.request import first_seeds
    from ssmlbench.runs.folder import has_runs_of

    if seeds is not None:
        if typed["seed"] is not None:
            raise UserError("--seed and --seeds are both given; keep one")
        typed["seed"] = first_seeds(seeds)
    request = source.request(typed)
    # If every method has runs already, all runs of this command may be finished.
    fresh = any(not has_runs_of(where.results, m) for m in request.values.get("method", ()))
    grid = None if tuned else cached_grid(request, source, where, engine)
    plugins = None
    if grid is not None and not fresh:
        plugins = load_plugins([*request.plugins], data_options(own))
        if (finished := grid.finished_runs(plugins)) is not None:
            unchecked_command(where, engine, where.results).print_finished(finished)
            return
    command = command_of(where, engine, where.results, fresh)
    plugins = plugins or load_plugins([*request.plugins], data_options(own))
    specs = specs_of(request, plugins, source, command, where.results if tuned else None)
    without_notes = command.make(specs, plugins)
    if grid is not None and without_notes:
        grid.store(specs, plugins)


def cached_grid(
    request: GridRequest, source: RequestOptions, where: Where, engine: dict[str, Any]
) -> CachedGrid | None:
    """The grid of this command in the cache; None if such commands are planned each time."""
    from ssmlbench.grid.cached_grids import CachedGrid

    if engine["engine"] != "local" or where.dry_run or where.log:
        return None
    options = {"data_dir": source.data_dir, "skip_bad": source.skip_bad, **engine, **vars(where)}
    return CachedGrid(request, where.results.resolve(), {**options, "quiet": None})


def command_of(
    where: Where, engine: dict[str, Any], results: Path, fresh: bool = True
) -> GridCommand:
    """The command that makes the runs and prints. fresh: whether some runs are certainly unfinished."""
    from ssmlbench.grid.run_one import start_fork_server

    devices_of_a_run(where)  # before anything is started
    if fresh and engine["engine"] == "local" and not where.dry_run:
        start_fork_server()  # it imports torch at the same time as this process
    from ssmlbench.runs.execute import quieten

    quieten()
    command = unchecked_command(where, engine, results)
    command.dispatch.check()
    if not where.dry_run:
        check_folder(command.dispatch.context.results, "--results")
    return command


def devices_of_a_run(where: Where) -> int:
    """The number of devices that share a run. All but the first copy of torchrun end here."""
    from ssmlbench.grid.torchrun import Copies

    copies = Copies.of_environment()
    if not copies.leads:
        raise typer.Exit
    return copies.devices(where.gpus)


def unchecked_command(where: Where, engine: dict[str, Any], results: Path) -> GridCommand:
    """The command, before its device and engine are checked."""
    from ssmlbench.grid.dispatch import Dispatch
    from ssmlbench.grid.loggers import logger_names
    from ssmlbench.runs.context import RunContext

    context = RunContext(
        results.resolve(),
        where.device,
        where.threads,
        decoded_cache=where.decoded_cache,
        keep_model=where.keep_model,
        keep_features=where.keep_features,
        gpus=devices_of_a_run(where),
        micro_batch=where.micro_batch,
        checkpoint_activations=where.checkpoint_activations,
        time_limit=seconds(where.time_limit, "--time-limit"),
    )
    options = engine_options(engine)
    dispatch = Dispatch(context, engine["engine"], where.jobs, where.workers, options)
    loggers = logger_names(where.log)
    return GridCommand(dispatch, where.quiet, where.dry_run, loggers=loggers)


def specs_of(
    request: GridRequest,
    plugins: Plugins,
    source: RequestOptions,
    command: GridCommand,
    tuned_in: Path | None = None,
    check: Callable[[RunSpec], object] = lambda spec: None,
) -> list[RunSpec]:
    """Every run of the request; the data sets that it prepares are shown.

    check: called with each spec before data is prepared; it raises a UserError for a wrong one.
    """
    from ssmlbench.cli.data import prepare_shown
    from ssmlbench.grid.request import requested_specs
    from ssmlbench.runs.resolve import encoder_notes

    def prepare_data(adapter: type[DatasetAdapter]) -> None:
        prepare_shown(
            adapter(data_dir=source.data_dir),
            source.skip_bad,
            Console(),
            quiet=command.quiet,
            notes=True,
        )

    command.dispatch = command.dispatch.typed(request.words)
    specs = requested_specs(request, plugins, command.dispatch, prepare_data, tuned_in, check)
    command.note(encoder_notes(specs, plugins, request.values))
    return specs
