"""`ssmlbench run`: from what was typed to a list of run specs, and those to the engine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ssmlbench.cli.options import (
    DataDir,
    PluginFiles,
    SkipBad,
    load_plugins,
    one_of,
    typed_list,
)
from ssmlbench.errors import UserError


def run(
    method: Annotated[str, typer.Option(help="Method name, or several: cap,bbam.")],
    dataset: Annotated[
        str, typer.Option(help="Data set name, or the path of your own data; or several.")
    ],
    pi: Annotated[
        str | None, typer.Option(help="π, the labelled fraction, or several: 0.05,0.1.")
    ] = None,
    seed: Annotated[str | None, typer.Option(help="Seed, or several: 0,3. Default 0.")] = None,
    seeds: Annotated[int | None, typer.Option(help="This many seeds: 0, 1, …")] = None,
    regime: Annotated[
        str, typer.Option(help="semi, single-positive, partial-positive, full; or several.")
    ] = "semi",
    share: Annotated[
        str | None, typer.Option(help="partial-positive: share of positives kept, or several.")
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="Encoder: a plugin's, a torchvision model, a Hugging Face id or folder. "
            "[the data set's]"
        ),
    ] = None,
    freeze: Annotated[
        bool, typer.Option("--freeze", help="Encode once, cache, train on the features.")
    ] = False,
    weights: Annotated[
        str | None,
        typer.Option(help="pretrained, none (from scratch), or a torchvision weights name."),
    ] = None,
    strong_views: Annotated[
        int | None, typer.Option(help="--freeze: strong views drawn of a row. [4]")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Images are squashed to this many pixels. [224]")
    ] = None,
    normalise: Annotated[
        bool | None,
        typer.Option(
            "--normalise/--no-normalise", help="Images as the weights expect. [--normalise]"
        ),
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Texts are cut here. [256]")] = None,
    pooling: Annotated[
        str | None, typer.Option(help="masked, or all: padding is pooled, as released. [masked]")
    ] = None,
    scaling: Annotated[
        str | None,
        typer.Option(
            help="Feature vectors: standard (columns standardised, rows of one length), or none. "
            "[standard]"
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="All epochs, warm-up included. [40]")] = None,
    warmup_epochs: Annotated[
        int | None, typer.Option(help="Epochs on labelled rows only. [30 % of --epochs]")
    ] = None,
    epoch: Annotated[
        str,
        typer.Option(
            help="Warm-up epochs are counted over: unlabelled, or labelled (as released)."
        ),
    ] = "unlabelled",
    batch_size: Annotated[int | None, typer.Option(help="Unlabelled rows in a step. [64]")] = None,
    labelled_batch_size: Annotated[
        int | None, typer.Option(help="Labelled rows in a step. [32]")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Peak learning rate. [the encoder's]")] = None,
    selection: Annotated[
        str, typer.Option(help="last, val (held-out labelled rows), oracle† (the test set).")
    ] = "last",
    split: Annotated[str, typer.Option(help="random or stratified.")] = "random",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="key=value: a hyper-parameter; method.key=value: of that method only."
        ),
    ] = None,
    plugin: PluginFiles = None,
    data_dir: DataDir = None,
    skip_bad: SkipBad = False,
    results: Annotated[Path, typer.Option(help="Where finished runs are kept.")] = Path("results"),
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    jobs: Annotated[int, typer.Option(help="Runs made at the same time.")] = 1,
    workers: Annotated[
        int | None, typer.Option(help="Threads of a run that decode images. [the cores it has]")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only warnings and failures.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the runs and what is done; make none.")
    ] = False,
) -> None:
    """Train: one run, or every combination of the lists given. Finished runs are never made twice."""
    from ssmlbench import grid
    from ssmlbench.cli.data import prepare_shown
    from ssmlbench.device import core_count, pick_device
    from ssmlbench.progress import Display
    from ssmlbench.runner import Place, quieten

    console = Console()
    quieten()
    for value, allowed, name in (
        (selection, ("last", "val", "oracle"), "--selection"),
        (split, ("random", "stratified"), "--split"),
        (epoch, ("unlabelled", "labelled"), "--epoch"),
    ):
        one_of(value, allowed, name)
    if workers is not None and workers < 0:
        raise UserError(f"--workers {workers}: must be 0 (none) or more")
    if jobs < 1:
        raise UserError(f"--jobs {jobs}: must be at least 1")
    if seeds is not None and seeds < 1:
        raise UserError(f"--seeds {seeds}: must be at least 1; --seed {seeds} names a single seed")
    pick_device(device)
    plugins = load_plugins(plugin)
    for name in typed_list(method, str, "--method"):
        _ = plugins.methods[name]  # a mistyped name is told before the data is prepared
    names = tuple(plugins.data_set(typed) for typed in typed_list(dataset, str, "--dataset"))
    for name in names:
        prepare_shown(plugins.datasets[name](data_dir=data_dir), skip_bad, console, quiet=quiet)
    specs = []
    for one_regime in typed_list(regime, str, "--regime"):
        one_of(one_regime, ("semi", "single-positive", "partial-positive", "full"), "--regime")
        axes: dict[str, Any] = {
            "dataset": names,
            "pi": _axis(one_regime == "semi", pi, "--pi", "0.1"),
            "share": _axis(one_regime == "partial-positive", share, "--share", "0.5"),
            "method": typed_list(method, str, "--method"),
            "seed": tuple(range(seeds)) if seeds else typed_list(seed or "0", int, "--seed"),
        }
        specs += grid.expand(
            plugins,
            axes,
            _settings(set_),
            regime=one_regime,
            backbone=backbone,
            freeze=freeze,
            weights=weights,
            strong_views=strong_views,
            image_size=image_size,
            normalise=normalise,
            max_tokens=max_tokens,
            pooling=pooling,
            scaling=scaling,
            epochs=epochs,
            warmup_epochs=warmup_epochs,
            epoch_count=epoch,
            batch_size=batch_size,
            labelled_batch_size=labelled_batch_size,
            lr=lr,
            selection=selection,
            split=split,
        )
    cores = core_count()
    share_of_cores = max(1, cores // jobs)
    place = Place(
        results.resolve(), device, share_of_cores, share_of_cores if workers is None else workers
    )
    if dry_run:
        console.print(_run_table(specs, place.results))
        return
    _check_writable(results)
    if jobs > cores:
        console.print(
            f"warning: --jobs {jobs} on {cores} cores: the runs will share them", highlight=False
        )
    with Display(console, len(specs), quiet) as display:
        summary = grid.run_all(specs, plugins, place, jobs, display.report)
    if not quiet:
        console.print(
            f"{summary.done} done, {summary.already} already there, {len(summary.failed)} failed; "
            f"`ssmlbench compare --results {results}` shows them",
            highlight=False,
            soft_wrap=True,
        )
    if summary.failed:
        raise typer.Exit(2)


def _axis(wanted: bool, text: str | None, name: str, example: str) -> tuple[float | None, ...]:
    if not wanted:
        return (None,)
    if text is None:
        raise UserError(f"{name} is missing, e.g. {name} {example}")
    return typed_list(text, float, name)


def _settings(texts: list[str] | None) -> dict[str, str]:
    settings = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--set {text}: expected key=value, e.g. --set loss=bce")
        settings[key.strip()] = value.strip()
    return settings


def _check_writable(results: Path) -> None:
    try:
        results.mkdir(parents=True, exist_ok=True)
        probe = results / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"cannot write to {results}: {error.strerror}; choose another folder with --results"
        ) from None


def _run_table(specs: list[Any], results: Path) -> Any:
    from rich.table import Table

    from ssmlbench.store import RunFolder

    table = Table(title=f"{len(specs)} runs")
    for column in ("method", "data set", "regime", "seed", "hash", "state"):
        table.add_column(column)
    done = 0
    for spec in specs:
        folder = RunFolder.of(results, spec)
        begun = folder.checkpoint_file.exists()
        state = "done" if folder.finished else "begun" if begun else "to do"
        done += state == "done"
        table.add_row(
            spec.variant, spec.dataset, spec.regime_label, str(spec.seed), spec.hash, state
        )
    table.caption = f"{done} done, {len(specs) - done} to make"
    return table
