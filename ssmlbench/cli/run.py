"""`ssmlbench run`: from what was typed to a list of run specs, and those to the engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ssmlbench.cli.dispatch import ENGINES, Dispatch
from ssmlbench.cli.options import (
    DataDir,
    PluginFiles,
    SkipBad,
    load_plugins,
    one_of,
    typed_list,
)
from ssmlbench.errors import UserError

if TYPE_CHECKING:
    from ssmlbench.grid import Asked
    from ssmlbench.registry import Plugins
    from ssmlbench.spec import RunSpec


def run(
    method: Annotated[str | None, typer.Option(help="Method name, or several: cap,bbam.")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Data set name, or the path of your own data; or several.")
    ] = None,
    grid: Annotated[
        Path | None,
        typer.Option(help="A TOML file with the axes and settings; what is typed beside it wins."),
    ] = None,
    pi: Annotated[
        str | None, typer.Option(help="π, the labelled fraction, or several: 0.05,0.1.")
    ] = None,
    seed: Annotated[str | None, typer.Option(help="Seed, or several: 0,3. Default 0.")] = None,
    seeds: Annotated[int | None, typer.Option(help="This many seeds: 0, 1, …")] = None,
    regime: Annotated[
        str | None,
        typer.Option(help="semi, single-positive, partial-positive, full; or several. [semi]"),
    ] = None,
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
        bool | None,
        typer.Option("--freeze/--no-freeze", help="Encode once, cache, train on the features."),
    ] = None,
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
    epochs: Annotated[int | None, typer.Option(help="All epochs, warm-up included. [40]")] = None,
    warmup_epochs: Annotated[
        int | None, typer.Option(help="Epochs on labelled rows only. [30 % of --epochs]")
    ] = None,
    epoch: Annotated[
        str | None,
        typer.Option(
            help="Warm-up epochs are counted over: unlabelled, or labelled (as released). "
            "[unlabelled]"
        ),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Unlabelled rows in a step. [64]")] = None,
    labelled_batch_size: Annotated[
        int | None, typer.Option(help="Labelled rows in a step. [32]")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Peak learning rate. [the encoder's]")] = None,
    selection: Annotated[
        str | None,
        typer.Option(help="last, val (held-out labelled rows), oracle† (the test set). [last]"),
    ] = None,
    split: Annotated[str | None, typer.Option(help="random or stratified. [random]")] = None,
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
    engine: Annotated[
        str, typer.Option(help="Who makes the runs: local, ray, or slurm (submit and exit).")
    ] = "local",
    jobs: Annotated[
        int | None,
        typer.Option(help="Runs made at the same time. [one a GPU, or all the cores can carry]"),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(help="CPU threads of a run. [1; fine-tuned encoders: a share of the cores]"),
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="--engine ray: the cluster's. [one is started here]")
    ] = None,
    slurm: Annotated[
        list[str] | None,
        typer.Option(help="--engine slurm: key=value, e.g. partition=gpu; may be repeated."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Threads of a run that decode images. [the cores it has]")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only warnings and failures.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the runs and what is done; make none.")
    ] = False,
) -> None:
    """Train: one run, or every combination of the lists given. Finished runs are never made twice."""
    from ssmlbench.grid import Asked
    from ssmlbench.grid.asked import merged
    from ssmlbench.grid.file import read_grid
    from ssmlbench.runner import Place, quieten

    quieten()
    typed = {
        "method": typed_list(method, str, "--method"),
        "dataset": typed_list(dataset, str, "--dataset"),
        "regime": typed_list(regime, str, "--regime"),
        "pi": typed_list(pi, float, "--pi"),
        "share": typed_list(share, float, "--share"),
        "seed": typed_list(seed, int, "--seed"),
        "seeds": seeds,
        "backbone": backbone,
        "freeze": freeze,
        "weights": weights,
        "strong-views": strong_views,
        "image-size": image_size,
        "normalise": normalise,
        "max-tokens": max_tokens,
        "pooling": pooling,
        "epochs": epochs,
        "warmup-epochs": warmup_epochs,
        "epoch": epoch,
        "batch-size": batch_size,
        "labelled-batch-size": labelled_batch_size,
        "lr": lr,
        "selection": selection,
        "split": split,
        "set": _settings(set_),
        "plugin": tuple(plugin or ()),
    }
    values = merged(
        read_grid(grid) if grid else {},
        {name: value for name, value in typed.items() if value not in (None, ())},
    )
    asked = Asked.of(values)
    one_of(engine, ENGINES, "--engine")
    for number, least, name in (
        (jobs, 1, "jobs"),
        (threads, 1, "threads"),
        (workers, 0, "workers"),
    ):
        if number is not None and number < least:
            raise UserError(f"--{name} {number}: must be at least {least}")
    if address and engine != "ray":
        raise UserError(f"--address {address} is for --engine ray")
    if slurm and engine != "slurm":
        raise UserError(f"--slurm {slurm[0]} is for --engine slurm")
    dispatch = Dispatch(
        Place(results.resolve(), device, threads),
        engine,
        jobs,
        workers,
        address,
        _pairs(slurm, "--slurm", "partition=gpu"),
        quiet,
        dry_run,
    )
    dispatch.check_device()
    plugins = load_plugins([*values["plugin"]])
    specs = specs_of(asked, plugins, data_dir, skip_bad, quiet)
    dispatch.make(specs, plugins)


def specs_of(
    asked: Asked, plugins: Plugins, data_dir: Path | None, skip_bad: bool, quiet: bool
) -> list[RunSpec]:
    """The data sets prepared, where they are not, and every run that is asked for."""
    from ssmlbench import grid
    from ssmlbench.cli.data import prepare_shown

    for name in asked.axes["method"]:
        _ = plugins.methods[name]  # a mistyped name is told before the data is prepared
    for typed in asked.axes["dataset"]:
        adapter = plugins.datasets[plugins.data_set(typed)](data_dir=data_dir)
        prepare_shown(adapter, skip_bad, Console(), quiet=quiet)
    return grid.expand(plugins, asked)


def _settings(texts: list[str] | None) -> dict[str, str]:
    return _pairs(texts, "--set", "loss=bce")


def _pairs(texts: list[str] | None, option: str, example: str) -> dict[str, str]:
    pairs = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"{option} {text}: expected key=value, e.g. {option} {example}")
        pairs[key.strip()] = value.strip()
    return pairs
