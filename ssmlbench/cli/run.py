"""`ssmlbench run`: from what was typed to a list of run specs, and those to the engine."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ssmlbench.cli.dispatch import GridCommand, engine_options, engine_parameters
from ssmlbench.cli.options import (
    DataDir,
    PluginFiles,
    SkipBad,
    key_values,
    load_plugins,
    typed_list,
)

if TYPE_CHECKING:
    from ssmlbench.core.spec import RunSpec
    from ssmlbench.plugins.loader import Plugins


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
    weight_decay: Annotated[float | None, typer.Option(help="AdamW's, decoupled. [1e-4]")] = None,
    selection: Annotated[
        str | None,
        typer.Option(help="last, val (held-out labelled rows), oracle† (the test set). [last]"),
    ] = None,
    split: Annotated[str | None, typer.Option(help="random or stratified. [random]")] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="float32, bfloat16 or float16. [float32; with CUDA bfloat16]"),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="key=value: a hyper-parameter; method.key=value: of that method only."
        ),
    ] = None,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="With the winners of `ssmlbench tune` of these cells.")
    ] = False,
    plugin: PluginFiles = None,
    data_dir: DataDir = None,
    skip_bad: SkipBad = False,
    results: Annotated[Path, typer.Option(help="Where finished runs are kept.")] = Path("results"),
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    jobs: Annotated[
        int | None,
        typer.Option(help="Runs made at the same time. [one a GPU, or all the cores can carry]"),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(help="CPU threads of a run. [1; fine-tuned encoders: a share of the cores]"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Threads of a run that decode images. [the cores it has]")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only warnings and failures.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the runs and what is done; make none.")
    ] = False,
    **of_engines: Any,
) -> None:
    """Train: one run, or every combination of the lists given. Finished runs are never made twice."""
    typed = {**locals(), **of_engines}  # by name: `tune` reads the same options
    values = values_of(typed)
    command = command_of(typed, results)
    plugins = load_plugins([*values["plugin"]])
    specs = specs_of(values, plugins, typed)
    if tuned:
        from ssmlbench.grid.study import tuned_specs

        specs = tuned_specs(specs, plugins, results)
    command.make(specs, plugins)


def _signature() -> inspect.Signature:
    """The options above, and after --device those of the engines."""
    *own, _ = inspect.signature(run, eval_str=True).parameters.values()
    own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    place = 1 + [p.name for p in own].index("device")
    return inspect.Signature([*own[:place], *engine_parameters(), *own[place:]])


run.__signature__ = _signature()  # type: ignore[attr-defined]


def values_of(typed: Mapping[str, Any]) -> dict[str, Any]:
    """What the grid file and the options ask for, by the names on the command line."""
    from ssmlbench.grid.request import AXES, FIXED, merged
    from ssmlbench.grid.toml_file import read_grid

    values: dict[str, Any] = {
        name: typed_list(typed[name], kind, f"--{name}") for name, kind in AXES.items()
    }
    values |= {name: typed[name.replace("-", "_")] for name in (*FIXED, "seeds")}
    values |= {
        "set": key_values(typed["set_"], "--set", "loss=bce"),
        "plugin": tuple(typed["plugin"] or ()),
    }
    given = {name: value for name, value in values.items() if value not in (None, ())}
    return merged(read_grid(typed["grid"]) if typed["grid"] else {}, given)


def command_of(typed: Mapping[str, Any], results: Path) -> GridCommand:
    """Where and how the runs are made, and what is printed."""
    from ssmlbench.grid import Dispatch
    from ssmlbench.runs.context import RunContext
    from ssmlbench.runs.execute import quieten

    quieten()
    context = RunContext(results.resolve(), typed["device"], typed["threads"])
    options = engine_options(typed)
    dispatch = Dispatch(context, typed["engine"], typed["jobs"], typed["workers"], options)
    dispatch.check()
    return GridCommand(dispatch, typed["quiet"], typed["dry_run"])


def specs_of(
    values: Mapping[str, Any], plugins: Plugins, typed: Mapping[str, Any]
) -> list[RunSpec]:
    """The data sets prepared, where they are not, and every run that is asked for."""
    from ssmlbench import grid
    from ssmlbench.cli.data import prepare_shown
    from ssmlbench.training.device import check_precision, default_precision, pick_device

    device, here = typed["device"], typed["engine"] == "local"
    asked = grid.GridRequest.of({"precision": default_precision(device, here), **values})
    if here:
        check_precision(pick_device(device), asked.fixed["precision"])
    for name in asked.axes["method"]:
        _ = plugins.methods[name]  # a mistyped name is told before the data is prepared
    for name in asked.axes["dataset"]:
        adapter = plugins.datasets[plugins.data_set(name)](data_dir=typed["data_dir"])
        prepare_shown(adapter, typed["skip_bad"], Console(), quiet=typed["quiet"])
    return grid.expand(plugins, asked)
