"""The command line. It parses, asks the engine, prints; torch is imported only when something runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console

import ssmlbench
from ssmlbench.cache_cli import app as cache_app
from ssmlbench.data_cli import DataDir, SkipBad, data_app
from ssmlbench.errors import UserError

if TYPE_CHECKING:
    from ssmlbench.registry import Plugins

app = typer.Typer(
    name="ssmlbench",
    help="One honest benchmark for semi-supervised multi-label learning.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
new_app = typer.Typer(no_args_is_help=True, help="Write a plugin file to start from.")
app.add_typer(new_app, name="new")
app.add_typer(data_app, name="data")
app.add_typer(cache_app, name="cache")

T = TypeVar("T")
PluginFiles = Annotated[
    list[str] | None, typer.Option("--plugin", help="A plugin file; may be repeated.")
]


def main() -> None:
    """The console script: a user's mistake is one line and exit code 2, never a traceback."""
    try:
        app()
    except UserError as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped; the same command goes on from here")
        sys.exit(130)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ssmlbench {ssmlbench.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def _list(text: str | None, kind: type[T], what: str) -> tuple[T, ...]:
    """`0.05,0.1` → (0.05, 0.1)."""
    if text is None:
        return ()
    try:
        values = tuple(kind(part.strip()) for part in text.split(",") if part.strip())  # type: ignore[call-arg]
    except ValueError:
        raise UserError(f"{what} {text}: not a list of numbers, e.g. {what} 0.05,0.1") from None
    if not values:
        raise UserError(f"{what} is empty")
    return values


def _wide_console() -> Console:
    """A terminal's own width; in a file or a pipe, room for a whole table."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=160)


def _plugins(files: list[str] | None) -> Plugins:
    from ssmlbench.registry import Plugins

    return Plugins(files or ())


@app.command()
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
    from ssmlbench.data_cli import prepare_shown
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
        _one_of(value, allowed, name)
    if workers is not None and workers < 0:
        raise UserError(f"--workers {workers}: must be 0 (none) or more")
    if jobs < 1:
        raise UserError(f"--jobs {jobs}: must be at least 1")
    if seeds is not None and seeds < 1:
        raise UserError(f"--seeds {seeds}: must be at least 1; --seed {seeds} names a single seed")
    pick_device(device)
    plugins = _plugins(plugin)
    for name in _list(method, str, "--method"):
        _ = plugins.methods[name]  # a mistyped name is told before the data is prepared
    names = tuple(plugins.data_set(typed) for typed in _list(dataset, str, "--dataset"))
    for name in names:
        prepare_shown(plugins.datasets[name](data_dir=data_dir), skip_bad, console, quiet=quiet)
    specs = []
    for one_regime in _list(regime, str, "--regime"):
        _one_of(one_regime, ("semi", "single-positive", "partial-positive", "full"), "--regime")
        axes: dict[str, Any] = {
            "dataset": names,
            "pi": _axis(one_regime == "semi", pi, "--pi", "0.1"),
            "share": _axis(one_regime == "partial-positive", share, "--share", "0.5"),
            "method": _list(method, str, "--method"),
            "seed": tuple(range(seeds)) if seeds else _list(seed or "0", int, "--seed"),
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
    return _list(text, float, name)


def _one_of(value: str, allowed: tuple[str, ...], name: str) -> None:
    from ssmlbench.spec import did_you_mean

    if value not in allowed:
        raise UserError(f"{name} {value}: no such choice.{did_you_mean(value, allowed)}")


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


@app.command()
def compare(
    results: Annotated[
        list[Path] | None, typer.Option(help="Results folder; may be repeated. [results]")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Only these data sets.")] = None,
    pi: Annotated[str | None, typer.Option(help="Only these π.")] = None,
    regime: Annotated[str | None, typer.Option(help="Only these regimes.")] = None,
    method: Annotated[str | None, typer.Option(help="Only these methods.")] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="micro_f1, macro_f1, map, hamming, one_loss, seconds_per_epoch, peak_memory_mb."
        ),
    ] = None,
    decision: Annotated[
        str, typer.Option(help="calibrated, threshold, or top-k‡ (the papers' oracle rule).")
    ] = "calibrated",
    selection: Annotated[str | None, typer.Option(help="Only runs with this selection.")] = None,
    convention: Annotated[
        str,
        typer.Option(help="default, or released (empty labels count 0, ties favour the model)."),
    ] = "default",
    format_: Annotated[
        str, typer.Option("--format", help="table, markdown, latex, csv, json.")
    ] = "table",
) -> None:
    """The leaderboard of the finished runs: five metrics, mean ± std over seeds."""
    from ssmlbench.leaderboard import Query, build_boards
    from ssmlbench.metrics import METRICS
    from ssmlbench.render import FORMATS, print_boards
    from ssmlbench.store import read_finished

    _one_of(format_, ("table", *FORMATS), "--format")
    _one_of(convention, ("default", "released"), "--convention")
    query = Query(
        datasets=_list(dataset, str, "--dataset"),
        regimes=_list(regime, str, "--regime"),
        pis=_list(pi, float, "--pi"),
        methods=_list(method, str, "--method"),
        selections=_list(selection, str, "--selection"),
        metrics=_list(metric, str, "--metric") or tuple(METRICS),
        decision=decision,
        convention=convention,
    )
    runs, complaints = read_finished(results or [Path("results")])
    for complaint in complaints:
        Console(stderr=True).print(f"warning: {complaint}", highlight=False, soft_wrap=True)
    boards = build_boards(runs, query)
    if not boards:
        raise UserError(
            f"none of the {len(runs)} finished runs fits; `ssmlbench run` makes more"
            if runs
            else "no finished run here yet; `ssmlbench run` makes one"
        )
    print_boards(boards, format_, _wide_console())


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Show this method in full.")] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Everything about all of them, as Markdown.")
    ] = False,
    plugin: PluginFiles = None,
) -> None:
    """What methods there are, or everything about one."""
    from ssmlbench import catalogue

    found = _plugins(plugin)
    console = Console()
    if markdown:
        console.out(catalogue.methods_markdown(found), highlight=False)
    elif name is None:
        _wide_console().print(catalogue.method_table(found))
    else:
        console.print(catalogue.method_page(found.methods[name]))


@app.command("datasets")
def datasets_command(plugin: PluginFiles = None) -> None:
    """What data sets there are."""
    from ssmlbench import catalogue

    _wide_console().print(catalogue.dataset_table(_plugins(plugin)))


@new_app.command("method")
def new_method(
    name: Annotated[str, typer.Argument(help="The method's name, e.g. my-method.")],
    folder: Annotated[Path, typer.Option(help="Where to write the file.")] = Path("."),
) -> None:
    """Write a commented, working method to start from."""
    from ssmlbench.templates import write_method

    file = write_method(name, folder)
    Console().print(
        f"wrote {file}\n  ssmlbench check {file}\n"
        f"  ssmlbench run --plugin {file} --method {name} --dataset multidigits --pi 0.05",
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def check(
    target: Annotated[
        str, typer.Argument(help="A plugin file, or the name of a method or encoder.")
    ],
) -> None:
    """Run the conformance suite on a method or encoder, on the CPU, within a minute."""
    from ssmlbench.conformance import check_plugins

    if not check_plugins(target, Console()):
        raise typer.Exit(2)
