"""`ssmlbench recommend`: from a folder of own data to a model that is known to work, and its labels."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ssmlbench.cli.data import prepare_shown
from ssmlbench.cli.data_options import data_options, data_parameters
from ssmlbench.cli.options import DataDir, PluginFiles, SkipBad, load_plugins, seconds
from ssmlbench.cli.run_options import with_options
from ssmlbench.core.errors import UserError
from ssmlbench.core.eta import duration

if TYPE_CHECKING:
    from ssmlbench.grid.recommend import Recommendation, Tried
    from ssmlbench.plugins.loader import Plugins
    from ssmlbench.runs.finished import Finished


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
    plugin: PluginFiles = None,
    data_dir: DataDir = None,
    skip_bad: SkipBad = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only the result.")] = False,
) -> None:
    """Compare learners on your labelled rows, train the winner on all of them, label the rest."""
    began = time.monotonic()  # the imports take their time too
    from ssmlbench.grid.dispatch import Dispatch
    from ssmlbench.grid.recommend import CANDIDATES, Recommendation, TimeBudget
    from ssmlbench.runs.context import RunContext
    from ssmlbench.runs.execute import quieten
    from ssmlbench.runs.resolve import default_encoder_notes

    quieten()
    console = Console()
    time_ = TimeBudget(seconds(budget, "--budget") or 0.0, began=began)
    plugins = load_plugins(plugin, data_options(own))
    name = plugins.data_set(dataset)
    adapter = plugins.datasets[name]
    prepare_shown(adapter(data_dir=data_dir), skip_bad, console, quiet=quiet)
    dispatch = Dispatch(RunContext(results.resolve(), device, keep_model=True), "local", jobs)
    dispatch.check()
    options: dict[str, Any] = {} if adapter.kind == "vector" else {"freeze": True}
    if backbone is not None:
        options["backbone"] = backbone
    candidates = tuple(method.split(",")) if method else CANDIDATES
    search = Recommendation(name, plugins, dispatch, options, time_, candidates)
    if backbone is None and not quiet:
        for note in default_encoder_notes(search.specs(candidates[0], folds=folds), plugins):
            _print(console, note)
    tried = _compare(search, folds, console, quiet)
    _show(tried, folds, console)
    winner = _train(search, tried[0].name, console, quiet)
    _label(winner, plugins, out or Path(f"{name}-labels.csv"), console)
    over = max(0.0, time_.used - time_.seconds)
    told = f", {duration(over)} more than the budget of {budget}" if over else f" of {budget}"
    _print(console, f"time: {duration(time_.used)}{told}")


def _compare(search: Recommendation, folds: int, console: Console, quiet: bool) -> list[Tried]:
    from ssmlbench.grid.display import Display

    total = folds * len(search.candidates)
    with Display(console, total, quiet) as display:
        search.ended = display.drop
        return search.tried(folds, display.report, lambda line: _print(console, line))


def _train(search: Recommendation, name: str, console: Console, quiet: bool) -> Finished:
    from ssmlbench.grid.display import Display

    with Display(console, 1, quiet) as display:
        made = search.make(search.specs(name, folds=0), display.report)
    if not made:
        raise UserError(f"{name}: training on every labelled row failed; give the command again")
    return made[0]


def _show(tried: list[Tried], folds: int, console: Console) -> None:
    """Print what wins, by how much, and how sure that is."""
    from ssmlbench.grid.recommend import fold_difference, mean_and_deviation

    table = Table(title=f"mAP over {folds} folds of the labelled rows", title_justify="left")
    for column in ("learner", "learns from", "mAP", "less than the best by (95 %)", "seconds"):
        table.add_column(column, justify="left" if column.startswith("lea") else "right")
    best = tried[0]
    for one in tried:
        gap = fold_difference(best, one)
        low, high = gap.interval
        behind = "" if one is best else f"{gap.mean:.4f} [{low:+.4f}, {high:+.4f}]"
        row = (one.name, one.uses, f"{one.mean:.4f} ± {one.std:.4f}", behind, f"{one.seconds:.0f}")
        table.add_row(*row)
    console.print(table)
    _print(console, f"{best.name} wins; {_certainty(tried)}")
    micro_f1, deviation = mean_and_deviation(best.micro_f1)
    _print(
        console,
        f"New rows like these: expect Micro-F1 {micro_f1:.3f} ± {deviation:.3f} (std over folds) of the "
        f"labels it chooses, and mAP {best.together:.3f} (of all held-out rows as one set: single folds "
        "have few positives of rare labels, and their mAP is above that). It was chosen on these "
        "folds, which makes both a little too good; it learns from more rows now, which helps.",
    )


def _certainty(tried: list[Tried]) -> str:
    from ssmlbench.grid.recommend import fold_difference

    if len(tried) == 1:
        return "nothing else was tried."
    best, second = tried[:2]
    gap = fold_difference(best, second)
    if gap.clear:
        return f"it is clearly better than {second.name}: the interval leaves out zero."
    close = [one.name for one in tried[1:] if not fold_difference(best, one).clear]
    return f"but these folds do not tell it from {', '.join(close)}: intervals hold zero."


def _label(winner: Finished, plugins: Plugins, out: Path, console: Console) -> None:
    """Label the data set's own unlabelled rows, if it has any."""
    from ssmlbench.core.paths import near
    from ssmlbench.runs.folder import RunFolder
    from ssmlbench.runs.predict import OwnRows, predict_rows
    from ssmlbench.runs.saved_model import SavedModel

    size = RunFolder(winner.folder).weights_file.stat().st_size / 2**20
    _print(console, f"model: {near(winner.folder)} ({size:.1f} MB), learnt from every labelled row")
    model = SavedModel(winner.folder, plugins)
    use = f"ssmlbench predict --run {winner.spec.hash} --results {near(winner.folder.parents[3])}"
    try:
        rows = OwnRows(model)
    except UserError:
        _print(console, f"label new rows with: {use} --input FILE --out labels.csv")
        return
    done = predict_rows(model, rows, out, score=rows.score)
    _print(console, f"{done:,} unlabelled rows are labelled in {out} (rule: calibrated)")
    _print(console, f"label other rows with: {use} --input FILE --out labels.csv")


def _print(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
