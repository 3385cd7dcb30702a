"""`ssmlbench predict`: labels for new rows, or for the data set's own unlabelled ones."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ssmlbench.cli.options import PluginFiles, ResultsFolders, load_plugins, read_runs, warn
from ssmlbench.core.console import Console
from ssmlbench.core.counts import counted
from ssmlbench.core.errors import UserError

if TYPE_CHECKING:
    from ssmlbench.runs.saved_model import SavedModel

LOG_SECONDS = 10.0
"""The least time between two lines of progress in a log."""


def predict(
    out: Annotated[Path, typer.Option(help="File to write: .csv, .jsonl or .parquet.")],
    run: Annotated[
        str | None, typer.Option(help="Hash of a finished run, its start, or the run's folder.")
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="Use the best run of the data set.")] = False,
    input_: Annotated[
        Path | None,
        typer.Option(
            "--input",
            help="A table, a file of texts or arrays, or a folder of texts or images.",
            show_default="the data set's own unlabelled rows",
        ),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="--best: of this data set.")] = None,
    metric: Annotated[str, typer.Option(help="--best: by this metric.")] = "map",
    decision: Annotated[
        str, typer.Option(help="Rule that chooses labels: calibrated or threshold.")
    ] = "calibrated",
    column: Annotated[
        str | None,
        typer.Option(help="Column of the inputs, if it has another name than text, image…"),
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Where the encoder is on this machine, if it has moved.")
    ] = None,
    results: ResultsFolders = None,
    device: Annotated[
        str, typer.Option(help="auto, cpu, cuda, cuda:1 (one GPU of several), mps.")
    ] = "auto",
    plugin: PluginFiles = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only warnings and errors.")] = False,
) -> None:
    """Write labels and probabilities of new rows with the model of a finished run."""
    from ssmlbench.core.suggestions import one_of
    from ssmlbench.data.plain_inputs import check_input, input_files, plain_inputs
    from ssmlbench.runs.choose import run_folder
    from ssmlbench.runs.execute import quieten
    from ssmlbench.runs.model_card import USABLE_RULES
    from ssmlbench.runs.predict import OwnRows, check_out
    from ssmlbench.runs.saved_model import SavedModel
    from ssmlbench.training.device import check_device_name

    if best == (run is not None):
        raise UserError("type either --run HASH, or --best for the best run")
    if not best and dataset is not None:
        raise UserError("--dataset is for --best; --run names the run, and with it the data set")
    one_of(decision, USABLE_RULES, "--decision")
    check_device_name(device)
    if input_ is not None:
        check_input(input_)
    elif column is not None:
        raise UserError(f"--column {column} is for --input, which is not given")
    check_out(out, [] if input_ is None else [input_])
    quieten()
    console = Console(stderr=True, quiet=quiet)
    roots = results or [Path("results")]
    plugins = load_plugins(plugin)
    if run is not None:
        folder, why = run_folder(run, roots), ""
    else:
        folder, why = _best_folder(roots, dataset, metric, decision)
    model = SavedModel(folder, plugins, backbone, device)
    rows: Iterable[tuple[str, Any]]
    if input_ is None:
        rows = OwnRows(model)
    else:
        check_out(out, input_files(input_, model.card.kind))
        rows = plain_inputs(input_, model.card.kind, column, model.card.columns)
    if why:
        console.print_line(why)
    warn(model.notes)
    done = predict_shown(model, rows, out, console, decision)
    console.print_line(
        f"{counted(done, 'row')} predicted by {model.spec.variant} (rule: {decision}); {out}"
    )


def _best_folder(
    roots: list[Path], dataset: str | None, metric: str, decision: str
) -> tuple[Path, str]:
    """The folder of the best run of a data set, which may be named by its folder, and why it is best."""
    from ssmlbench.boards.query import column_key
    from ssmlbench.protocol.metrics import METRICS
    from ssmlbench.runs.choose import best_run

    name = Path(dataset).name if dataset and Path(dataset).is_dir() else dataset
    key = column_key(metric, METRICS)  # the cheapest run is not the best one
    chosen, why = best_run(read_runs(roots), name, key, decision)
    return chosen.folder, f"{chosen.folder}: {why}"


def predict_shown(
    model: SavedModel,
    rows: Iterable[tuple[str, Any]],
    out: Path,
    console: Console,
    decision: str = "calibrated",
) -> int:
    """Predict with progress: a bar on a terminal, lines in a log; returns the number of rows."""
    from ssmlbench.runs.predict import OwnRows, predict_rows

    total, score = (len(rows), rows.score) if isinstance(rows, OwnRows) else (None, None)
    last = time.monotonic()

    def log(done: int) -> None:
        nonlocal last
        if time.monotonic() - last >= LOG_SECONDS:
            last = time.monotonic()
            of = f" of {total:,}" if total is not None else ""
            console.print(f"predicting: {done:,}{of} rows", highlight=False)

    if not console.is_terminal:
        return predict_rows(model, rows, out, decision, log, score)
    with Progress(
        SpinnerColumn(),
        TextColumn("predicting"),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as progress:
        bar = progress.add_task("rows", total=total)
        return predict_rows(
            model, rows, out, decision, lambda count: progress.update(bar, completed=count), score
        )
