"""`ssmlbench tune`: the same number of trials for every method, judged on held-out labelled rows."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ssmlbench.cli.options import load_plugins, one_of, typed_list
from ssmlbench.cli.run import _axis, _check_writable, _settings, run
from ssmlbench.errors import UserError

if TYPE_CHECKING:
    from ssmlbench.registry import Plugins
    from ssmlbench.spec import RunSpec
    from ssmlbench.tune import Record, Study

AXES = ("method", "dataset", "pi", "regime", "share")
SETTINGS = (
    "backbone",
    "freeze",
    "weights",
    "strong_views",
    "image_size",
    "normalise",
    "max_tokens",
    "pooling",
    "epochs",
    "warmup_epochs",
    "batch_size",
    "labelled_batch_size",
    "lr",
    "selection",
    "split",
)
ELSE = ("epoch", "set_", "plugin", "data_dir", "skip_bad", "results", "device", "jobs", "workers")


def tune(
    trials: Annotated[int, typer.Option(help="Configurations drawn for every method.")],
    seed: Annotated[int, typer.Option(help="Draws the labelled rows and the configurations.")] = 0,
    **typed: Any,
) -> None:
    """Draw configurations, train each, judge it on held-out labelled rows; `run --tuned` uses the best.

    Trial 0 is the default configuration. The test set is not opened.
    """
    from ssmlbench import grid
    from ssmlbench.device import core_count, pick_device
    from ssmlbench.progress import Display
    from ssmlbench.runner import Place, quieten
    from ssmlbench.tune import Study, close, held_out_note, trials_root

    console, quiet = Console(), typed["quiet"]
    quieten()
    if trials < 1:
        raise UserError(f"--trials {trials}: must be at least 1, e.g. --trials 20")
    if typed["jobs"] < 1:
        raise UserError(f"--jobs {typed['jobs']}: must be at least 1")
    pick_device(typed["device"])
    plugins = load_plugins(typed["plugin"])
    bases = _bases(plugins, console, seed, typed)
    studies = [Study.of(base, plugins, trials) for base in bases]
    for note in dict.fromkeys(held_out_note(base, plugins) for base in bases):
        if not quiet:
            console.print(note, highlight=False, soft_wrap=True)
    results: Path = typed["results"]
    _check_writable(results)
    cores = max(1, core_count() // typed["jobs"])
    workers = cores if typed["workers"] is None else typed["workers"]
    place = Place(trials_root(results.resolve()), typed["device"], cores, workers)
    specs = [spec for study in studies for spec in study.specs()]
    with Display(console, len(specs), quiet) as display:
        summary = grid.run_all(specs, plugins, place, typed["jobs"], display.report)
    closed = [(study, close(study, results)) for study in studies]
    if not quiet:
        console.print(_winners([(study, records) for study, records in closed if records]))
    if summary.failed:
        raise UserError(
            f"{len(summary.failed)} trials could not be made, and their studies are not finished; "
            "the same command goes on from here"
        )


def _signature() -> inspect.Signature:
    """What is typed for `tune` means what it means for `run`: the options are taken from there."""
    own = list(inspect.signature(tune, eval_str=True).parameters.values())[:-1]
    theirs = inspect.signature(run, eval_str=True).parameters
    taken = [theirs[name] for name in (*AXES, *SETTINGS, *ELSE, "quiet")]
    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*taken, *own)]
    return inspect.Signature(keyword)


tune.__signature__ = _signature()  # type: ignore[attr-defined]


def _bases(plugins: Plugins, console: Console, seed: int, typed: dict[str, Any]) -> list[RunSpec]:
    """The cells to be tuned, as the runs that were asked for."""
    from ssmlbench import grid
    from ssmlbench.cli.data import prepare_shown

    one_of(typed["selection"], ("last", "val", "oracle"), "--selection")
    one_of(typed["split"], ("random", "stratified"), "--split")
    one_of(typed["epoch"], ("unlabelled", "labelled"), "--epoch")
    methods = typed_list(typed["method"], str, "--method")
    for name in methods:
        _ = plugins.methods[name]  # a mistyped name is told before the data is prepared
    names = tuple(plugins.data_set(t) for t in typed_list(typed["dataset"], str, "--dataset"))
    for name in names:
        adapter = plugins.datasets[name](data_dir=typed["data_dir"])
        prepare_shown(adapter, typed["skip_bad"], console, quiet=typed["quiet"])
    bases = []
    for regime in typed_list(typed["regime"], str, "--regime"):
        one_of(regime, ("semi", "single-positive", "partial-positive", "full"), "--regime")
        axes: dict[str, Any] = {
            "dataset": names,
            "pi": _axis(regime == "semi", typed["pi"], "--pi", "0.1"),
            "share": _axis(regime == "partial-positive", typed["share"], "--share", "0.5"),
            "method": methods,
        }
        settings = {name: typed[name] for name in SETTINGS}
        bases += grid.expand(
            plugins,
            axes,
            _settings(typed["set_"]),
            **settings,
            regime=regime,
            epoch_count=typed["epoch"],
            seed=seed,
        )
    return bases


def _winners(closed: list[tuple[Study, list[Record]]]) -> Any:
    from rich.table import Table

    from ssmlbench.search import as_typed
    from ssmlbench.tune import winner

    table = Table(caption="mAP on held-out labelled rows; `ssmlbench run --tuned` uses the best")
    for column in ("method", "data set", "regime", "trials", "default", "best", "trial", "with"):
        table.add_column(column)
    for study, records in closed:
        best, base = winner(records), study.base
        drawn = best.drawn if best else {}
        table.add_row(
            base.variant,
            base.dataset,
            base.regime_label,
            str(study.trials),
            "diverged" if records[0].diverged else f"{records[0].map:.4f}",
            f"{best.map:.4f}" if best else "all diverged",
            str(best.trial) if best else "",
            ", ".join(f"{name}={as_typed(value)}" for name, value in drawn.items()),
        )
    return table
