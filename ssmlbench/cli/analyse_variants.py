"""`ssmlbench analyse ablation` and `sensitivity`: they make the runs that they need, then analyse them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ssmlbench.cli.data_options import data_options, data_parameters
from ssmlbench.cli.dispatch import GridCommand, engine_parameters
from ssmlbench.cli.options import key_values, load_plugins, typed_list
from ssmlbench.cli.run import command_of, specs_of
from ssmlbench.cli.run_options import RequestOptions, Where, in_panel, run_parameters, with_options
from ssmlbench.core.errors import UserError
from ssmlbench.core.files import check_folder
from ssmlbench.core.run_options import WHAT, WHERE

if TYPE_CHECKING:
    from ssmlbench.boards.analyses.contract import Findings
    from ssmlbench.boards.analyses.variants import VariantRuns
    from ssmlbench.core.spec import RunSpec
    from ssmlbench.grid.request import GridRequest
    from ssmlbench.grid.variants import Variant
    from ssmlbench.plugins.loader import Plugins

Seeds = Annotated[int, typer.Option(help="This many seeds: 0, 1, …", rich_help_panel=WHAT)]
Metrics = Annotated[str, typer.Option("--metric", help="Metrics, e.g. map,micro_f1.")]
Out = Annotated[Path, typer.Option(help="The folder that figures and numbers are written to.")]
OPTIONS: dict[str, Any] = {
    "typed": run_parameters(without=("seed",)),
    "source": RequestOptions,
    "own": data_parameters(),
    "where": Where,
    "engine": in_panel(engine_parameters(), WHERE),
}


@with_options(**OPTIONS)
def ablation(
    typed: dict[str, Any],
    source: RequestOptions,
    own: dict[str, Any],
    where: Where,
    engine: dict[str, Any],
    seeds: Seeds = 3,
    metric: Metrics = "map,micro_f1",
    out: Out = Path("analyses"),
) -> None:
    """Run a method's declared variants, each with one ingredient changed, and compare them by seed."""
    from ssmlbench.boards.analyses.variants import ablation_findings
    from ssmlbench.grid.variants import ablations

    check_folder(out, "--out")
    request = _request(source, typed, seeds)
    query = _query(metric)
    plugins = load_plugins([*request.plugins], data_options(own))
    variants = ablations(request, plugins)
    made = _make(variants, plugins, source, command_of(where, engine, where.results), where.results)
    method = request.values["method"][0]
    _show([ablation_findings(method, at, found, query) for at, found in made.items()], out)


@with_options(**OPTIONS)
def sensitivity(
    typed: dict[str, Any],
    source: RequestOptions,
    own: dict[str, Any],
    where: Where,
    engine: dict[str, Any],
    param: Annotated[str, typer.Option(help="One or two hyper-parameters: scale,margin_size.")],
    values: Annotated[
        list[str] | None,
        typer.Option(help="name=1,2,4: its values; by default five over its declared range."),
    ] = None,
    together: Annotated[
        bool, typer.Option("--together", help="All combinations, instead of one at a time.")
    ] = False,
    gradients: Annotated[
        bool,
        typer.Option(
            "--gradients",
            help="Also how far gradients of positives and negatives are from balance (HML, Figure 3).",
        ),
    ] = False,
    seeds: Seeds = 3,
    metric: Metrics = "map,micro_f1",
    out: Out = Path("analyses"),
) -> None:
    """Run a method over values of one or two hyper-parameters, and draw each metric over them."""
    from ssmlbench.boards.analyses.variants import sensitivity_findings
    from ssmlbench.grid.variants import values_of

    parameters = list(dict.fromkeys(typed_list(param, str, "--param")))
    if len(parameters) > 2:
        raise UserError(f"--param {param}: one or two hyper-parameters at a time")
    check_folder(out, "--out")
    request = _request(source, typed, seeds)
    query = _query(metric)
    plugins = load_plugins([*request.plugins], data_options(own))
    pairs = key_values(values, "--values", "scale=5,10,20")
    lists = {name: typed_list(text, str, f"--values {name}") for name, text in pairs.items()}
    variants = values_of(request, plugins, parameters, lists, together)
    made = _make(variants, plugins, source, command_of(where, engine, where.results), where.results)
    method = request.values["method"][0]
    _show(
        [
            sensitivity_findings(method, at, found, parameters, together, query, gradients)
            for at, found in made.items()
        ],
        out,
    )


def _request(source: RequestOptions, typed: dict[str, Any], seeds: int) -> GridRequest:
    from ssmlbench.grid.request import first_seeds

    return source.request({**typed, "seed": first_seeds(seeds)})


def _query(metric: str) -> Any:
    from ssmlbench.boards.query import Query

    return Query(metrics=typed_list(metric, str, "--metric"))


def _make(
    variants: Sequence[Variant],
    plugins: Plugins,
    source: RequestOptions,
    command: GridCommand,
    results: Path,
) -> dict[str, list[VariantRuns]]:
    """Make the runs of all variants. Returns the finished ones by cell, each cell with all variants."""
    from ssmlbench.boards.analyses.variants import VariantRuns
    from ssmlbench.runs.finished import Finished, read_result
    from ssmlbench.runs.folder import RunFolder

    planned: dict[str, list[RunSpec]] = {
        variant.name: specs_of(variant.request, plugins, source, command) for variant in variants
    }
    every = {spec.hash: spec for specs in planned.values() for spec in specs}
    command.make(list(every.values()), plugins)
    if command.dry_run:
        raise typer.Exit
    places = dict.fromkeys(_place(spec) for spec in every.values())
    by_place: dict[str, list[VariantRuns]] = {place: [] for place in places}
    unfinished = 0
    for variant in variants:
        for place in places:
            specs = [spec for spec in planned[variant.name] if _place(spec) == place]
            runs = [read_result(RunFolder.of(results.resolve(), spec).path) for spec in specs]
            finished = [run for run in runs if isinstance(run, Finished)]
            unfinished += len(runs) - len(finished)
            by_place[place].append(VariantRuns(variant.name, variant.changes, finished))
    if unfinished:
        raise UserError(
            f"{unfinished} of {len(every)} runs are not finished; the same command continues from here"
        )
    return by_place


def _place(spec: RunSpec) -> str:
    return f"{spec.dataset} · {spec.regime_label}"


def _show(found: Sequence[Findings], out: Path) -> None:
    from ssmlbench.cli.analyse import show_findings

    show_findings(found, out)
