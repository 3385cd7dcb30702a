"""`ssmlbench recommend`: from a folder of own data to a model that is known to work, and its labels."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ssmlbench.cli.data import prepare_shown
from ssmlbench.cli.data_options import data_options, data_parameters
from ssmlbench.cli.options import (
    DataDir,
    LogTo,
    PluginFiles,
    SkipBad,
    load_plugins,
    seconds,
    typed_list,
)
from ssmlbench.cli.predict import predict_shown
from ssmlbench.cli.run_options import with_options
from ssmlbench.core.commands import Sources, suggested
from ssmlbench.core.console import Console
from ssmlbench.core.counts import first_of
from ssmlbench.core.csv_cells import check_other_table
from ssmlbench.core.errors import UserError
from ssmlbench.core.eta import duration
from ssmlbench.core.files import check_folder

if TYPE_CHECKING:
    from ssmlbench.core.events import Event, Listener
    from ssmlbench.core.spec import RunSpec
    from ssmlbench.data.adapter import DatasetAdapter
    from ssmlbench.data.task import Card
    from ssmlbench.grid.dispatch import Dispatch
    from ssmlbench.grid.recommend import LearnerSearch, Recommended
    from ssmlbench.plugins.loader import Plugins
    from ssmlbench.runs.finished import Finished

SHOWN_LABELS = 5


@with_options(own=data_parameters())
def recommend(
    dataset: Annotated[str, typer.Option(help="Your own data: a folder, or a data set's name.")],
    own: dict[str, Any],
    budget: Annotated[str, typer.Option(help="Time for everything: 30m, 2h, 90s.")] = "30m",
    folds: Annotated[int, typer.Option(help="Folds of the labelled rows.", min=2)] = 5,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Labels of the unlabelled rows: .csv, .jsonl or .parquet.",
            show_default="DATASET-labels.csv",
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="Only these learners: logistic,cap.", show_default="a good few"),
    ] = None,
    backbone: Annotated[str | None, typer.Option(help="Encoder, as for `run`.")] = None,
    results: Annotated[Path, typer.Option(help="Where runs are kept.")] = Path("results"),
    device: Annotated[
        str, typer.Option(help="auto, cpu, cuda, cuda:1 (one GPU of several), mps.")
    ] = "auto",
    jobs: Annotated[int | None, typer.Option(help="Runs made at the same time.")] = None,
    log: LogTo = None,
    plugin: PluginFiles = None,
    data_dir: DataDir = None,
    skip_bad: SkipBad = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only the result.")] = False,
) -> None:
    """Compare learners on your labelled rows, train the winner on all of them, label the rest."""
    began = time.monotonic()  # the imports take their time too
    from ssmlbench.grid.loggers import logger_names
    from ssmlbench.grid.recommend import CANDIDATES, LearnerSearch, TimeBudget
    from ssmlbench.grid.request import GridRequest
    from ssmlbench.runs.execute import quieten
    from ssmlbench.runs.predict import RECOGNISED, check_out
    from ssmlbench.runs.resolve import encoder_notes

    quieten()
    console = Console()
    time_ = TimeBudget(seconds(budget, "--budget") or 0.0, began=began)
    loggers = logger_names(log)
    plugins = load_plugins(plugin, data_options(own))
    name = plugins.data_set(dataset)
    adapter = plugins.datasets[name]
    if out is None:
        out = Path(f"{name}-labels.csv")
        check_other_table(out, RECOGNISED, "--out")
    check_out(out, _own_files(adapter))  # now, not when the time is used up
    plugins.check_data_options([name])
    dispatch = _dispatch(results.resolve(), device, jobs)
    options: dict[str, Any] = {} if adapter.kind == "vector" else {"freeze": True}
    if backbone is not None:
        options["backbone"] = backbone
    candidates = tuple(dict.fromkeys(typed_list(method, str, "--method") or CANDIDATES))
    dispatch = dispatch.typed(GridRequest(options).words)
    search = LearnerSearch(name, plugins, dispatch, options, time_, candidates)
    search.check(folds, candidates if method else candidates[:1])
    task = prepare_shown(adapter(data_dir=data_dir), skip_bad, console, quiet=quiet, notes=True)
    lines = _about(task.card, folds)
    lines += encoder_notes(search.specs(candidates[0], folds=folds), plugins, options)
    if not quiet:
        for line in lines:
            console.print_line(line)
    recommended = _search(search, folds, loggers, console, quiet)
    _show(recommended, console)
    _label(recommended.run, plugins, out, console, quiet)
    over = max(0.0, time_.used - time_.seconds)
    limit = f", {duration(over)} more than the budget of {budget}" if over else f" of {budget}"
    console.print_line(f"time: {duration(time_.used)}{limit}")


def _own_files(adapter: type[DatasetAdapter]) -> list[Path]:
    """The files of own data, which the labels may not overwrite."""
    from ssmlbench.data.user_files import UserFiles

    return adapter().source_files() if issubclass(adapter, UserFiles) else []


def _dispatch(results: Path, device: str, jobs: int | None) -> Dispatch:
    """How the runs are made; a UserError if they cannot be made so."""
    from ssmlbench.grid.dispatch import Dispatch
    from ssmlbench.runs.context import RunContext

    dispatch = Dispatch(RunContext(results, device, keep_model=True), "local", jobs)
    dispatch.check()
    check_folder(results, "--results")
    return dispatch


def _about(card: Card, folds: int) -> list[str]:
    """What there is to learn from, and for which labels there is little."""
    labelled, partly = card.labelled["train"], card.partly_labelled["train"]
    rows = f"{labelled:,} labelled" + (f", {partly:,} partly labelled" if partly else "")
    lines = [
        f"{card.name}: {rows} and {card.unlabelled['train']:,} unlabelled rows, "
        f"{len(card.label_names):,} labels"
    ]
    positives = dict(zip(card.label_names, card.positives["train"], strict=True))
    few = sorted((n, label) for label, n in positives.items() if n < folds)
    if few:
        some = first_of([f"{label} {n}" for n, label in few], SHOWN_LABELS)
        lines.append(
            f"{len(few):,} labels have fewer than {folds} labelled rows ({some}): folds show "
            "little about them, and a fold without one leaves the label out of its mAP"
        )
    return lines


def _search(
    search: LearnerSearch, folds: int, loggers: list[str], console: Console, quiet: bool
) -> Recommended:
    """Compare the learners, with progress."""
    from ssmlbench.core.events import Warned
    from ssmlbench.grid.display import Display
    from ssmlbench.grid.loggers import LoggingThread

    def without_data_warnings(listener: Listener) -> Listener:
        """Drop warnings about the data: `_about` has printed them, and each fold would repeat them."""

        def pass_on(spec: RunSpec, event: Event) -> None:
            if not (isinstance(event, Warned) and event.of_data):
                listener(spec, event)

        return pass_on

    search.report = console.print_line
    logs = LoggingThread(
        loggers, search.dispatch.context.results, lambda line: search.report(f"warning: {line}")
    )
    with logs, Display(console, folds * len(search.candidates), quiet) as display:
        search.ended, search.expect = display.drop, display.expect
        return search.search(folds, logs.listening(without_data_warnings(display.report)))


def _show(recommended: Recommended, console: Console) -> None:
    """Print what wins, by how much, how sure that is, and what to expect of it."""
    from ssmlbench.grid.judged_learner import fold_difference

    best = recommended.winner
    folds = f"{len(best.runs)} of {best.folds}" if len(best.runs) < best.folds else f"{best.folds}"
    table = Table(title=f"mAP over {folds} folds of the labelled rows", title_justify="left")
    for column in ("learner", "learns from", "mAP", "less than the winner by (95 %)", "seconds"):
        table.add_column(column, justify="left" if column.startswith("lea") else "right")
    for one in recommended.learners:
        gap = fold_difference(best, one)
        low, high = gap.interval
        behind = "" if one.name == best.name else f"{gap.mean:.4f} [{low:+.4f}, {high:+.4f}]"
        mean = f"{one.mean:.4f} ± {one.std:.4f}"
        table.add_row(one.name, one.uses, mean, behind, f"{sum(one.seconds):.0f}")
    console.print(table)
    console.print_line(f"{best.name} wins; {_certainty(recommended)}")
    (micro_f1, (low, high)), (precision, (lower, upper)), (judged, labels) = best.expected
    console.print_line(
        f"New rows like these: expect Micro-F1 {micro_f1:.3f} [{low:.3f}, {high:.3f}] of the labels "
        f"it chooses, and mAP {precision:.3f} [{lower:.3f}, {upper:.3f}] (95 %; of many rows: single "
        "folds have few positives of rare labels, and their mAP is above that). It was chosen on these "
        "folds, which makes both a little too good; it learns from more rows now, which helps.",
    )
    if judged < labels:
        console.print_line(
            f"This mAP is of {judged:,} of the {labels:,} labels: the others have no held-out positive.",
        )


def _certainty(recommended: Recommended) -> str:
    from ssmlbench.grid.judged_learner import fold_difference
    from ssmlbench.grid.recommend import FLOOR

    best = recommended.winner
    others = [one for one in recommended.learners if one.name != best.name]
    if best.name == FLOOR:
        return "nothing else was judged, and it gives every row the same scores: it is useless."
    if not others:
        return "nothing else was tried."
    close = [one.name for one in others if not fold_difference(best, one).clear]
    if FLOOR in close:
        return (
            f"but these folds do not separate it from {FLOOR}, which gives every row the same scores: "
            "label more rows before relying on it."
        )
    if close:
        return f"but these folds do not separate it from {', '.join(close)}: the intervals include zero."
    return f"it is clearly better than {others[0].name}: the interval excludes zero."


def _label(winner: Finished, plugins: Plugins, out: Path, console: Console, quiet: bool) -> None:
    """Label the data set's own unlabelled rows, if it has any."""
    from ssmlbench.core.paths import near
    from ssmlbench.runs.folder import RunFolder
    from ssmlbench.runs.predict import OwnRows
    from ssmlbench.runs.saved_model import SavedModel

    size = RunFolder(winner.folder).weights_file.stat().st_size / 2**20
    console.print_line(
        f"model: {near(winner.folder)} ({size:.1f} MB), learnt from every labelled row"
    )
    model = SavedModel(winner.folder, plugins)
    use = suggested(
        *("predict", "--run", winner.spec.hash, "--input", "FILE", "--out", "labels.csv"),
        plugins=Sources.of_result(winner.result).plugins,
        results=winner.folder.parents[3],
    )
    try:
        rows = OwnRows(model)
    except UserError:
        console.print_line(f"label new rows with: {use}")
        return
    done = predict_shown(model, rows, out, Console(stderr=True, quiet=quiet))
    console.print_line(f"{done:,} unlabelled rows are labelled in {out} (rule: calibrated)")
    console.print_line(f"label other rows with: {use}")
