"""`ssmlbench data …`: prepare a data set, show its card, compare it with published statistics.

Nothing here trains, so torch is never imported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ssmlbench.cli.data_options import data_options, data_parameters
from ssmlbench.cli.fresh_preparation import prepare_apart
from ssmlbench.cli.options import DataDir, PluginFiles, SkipBad, load_plugins
from ssmlbench.cli.run_options import with_options
from ssmlbench.core.console import Console
from ssmlbench.core.errors import DamagedFile, UserError

if TYPE_CHECKING:
    from ssmlbench.data import Card, DatasetAdapter, Task

data_app = typer.Typer(no_args_is_help=True, help="Prepare, check and list data sets.")

LOG_SECONDS = 10.0
"""The least time between two lines of progress in a log."""
ALL_LABELS = 30
"""A card shows all labels if there are at most this many, else the most and the least frequent ones."""

Name = Annotated[str, typer.Argument(help="A data set, or the path of your own.")]


@data_app.command("prepare")
@with_options(own=data_parameters())
def prepare_command(
    name: Name,
    own: dict[str, Any],
    from_: Annotated[
        Path | None, typer.Option("--from", help="The folder of its raw files; prepares it again.")
    ] = None,
    data_dir: DataDir = None,
    skip_bad: SkipBad = False,
    plugin: PluginFiles = None,
) -> None:
    """Convert the raw files once into a task on disk, and print its card."""
    from ssmlbench.data import is_prepared

    console = Console()
    if from_ is not None and not from_.exists():
        raise UserError(f"--from {from_}: no such folder")
    adapter = adapter_of(name, plugin, from_, data_dir, own)
    if from_ is not None:
        check_from(adapter, from_)
    if is_prepared(adapter) and from_ is None:
        console.print(f"{adapter.name} is prepared already (--from FOLDER prepares it again)\n")
    task = prepare_shown(adapter, skip_bad, console, overwrite=from_ is not None)
    console.print(card_page(task.card))


@data_app.command("verify")
@with_options(own=data_parameters())
def verify_command(
    name: Name, own: dict[str, Any], data_dir: DataDir = None, plugin: PluginFiles = None
) -> None:
    """Compare a data set with its raw files and published statistics; exit code 1 for a difference."""
    from ssmlbench.data.published import compare_statistics, differences_to_published

    console = Console()
    adapter = adapter_of(name, plugin, None, data_dir, own)
    task = prepare_shown(adapter, False, console)
    differences = damage(task, adapter)
    differences += differences_to_published(task.card, adapter.published)
    if adapter.published:
        table = Table(title=f"{adapter.name} {task.card.fingerprint}", title_justify="left")
        for column in ("", "published", "here", ""):
            table.add_column(column)
        for each in compare_statistics(task.card, adapter.published):
            verdict = {None: "", True: "same", False: "differs"}[each.same]
            table.add_row(each.name, each.published, each.here, verdict)
        console.print(table)
        console.print(f"published by: {adapter.published.source}", highlight=False)
    for note in task.card.notes:
        console.print(f"note: {note}", highlight=False)
    for difference in differences:
        console.print(f"differs: {difference}", highlight=False)
    if differences:
        raise typer.Exit(1)
    verdict = (
        "equal to the published statistics"
        if adapter.published
        else "undamaged; no published statistics are known for it"
    )
    console.print(f"{adapter.name}: {verdict}", highlight=False)


@data_app.command("list")
def list_command(data_dir: DataDir = None, plugin: PluginFiles = None) -> None:
    """List the data sets and which of them are prepared."""
    table = Table()
    for column in ("data set", "kind", "state", "train", "test", "labels", "labels per row"):
        table.add_column(column)
    plugins = load_plugins(plugin)
    for name in plugins.datasets:
        adapter = plugins.datasets[name](data_dir=data_dir)
        table.add_row(name, adapter.kind, *_state(adapter))
    Console().print(table)


def adapter_of(
    name: str,
    plugin: list[str] | None,
    source: Path | None,
    data_dir: Path | None,
    own: Mapping[str, Any],
) -> DatasetAdapter:
    """The adapter of a data set that was named on the command line."""
    plugins = load_plugins(plugin, data_options(own))
    known = plugins.data_set(name)
    cls = plugins.datasets[known]
    plugins.check_data_options([known])
    return cls(source, data_dir)


def check_from(adapter: DatasetAdapter, folder: Path) -> None:
    """Raise a UserError if the adapter would not read the folder of `--from`."""
    if not adapter.layout:
        raise UserError(f"--from {folder}: {adapter.name} has no raw folder; leave it out")
    own = getattr(adapter, "raw_folder", None)
    if own is not None and folder.resolve() != own().resolve():
        raise UserError(
            f"--from {folder}: {adapter.typed_name} is read where it lies, in {own()}; leave it out, or "
            "name the other path instead"
        )


def _state(adapter: DatasetAdapter) -> tuple[str, str, str, str, str]:
    from ssmlbench.data import is_prepared, prepare

    if is_prepared(adapter):
        card = prepare(adapter).card
        train, test = (f"{card.rows.get(split, 0):,}" for split in ("train", "test"))
        return "prepared", train, test, str(len(card.label_names)), f"{card.mean_labels():.2f}"
    if not adapter.layout:
        return "made on first use", "", "", "", ""
    if adapter.folder is not None:
        return f"files in {adapter.folder}", "", "", "", ""
    return "on the hub" if adapter.hub else "no files", "", "", "", ""


def prepare_shown(
    adapter: DatasetAdapter,
    skip_bad: bool,
    console: Console,
    overwrite: bool = False,
    quiet: bool = False,
    notes: bool = False,
) -> Task:
    """Prepare with progress: bars on a terminal, lines in a log; silent if it is prepared.

    notes: print the notes on the data, for commands that show no card.
    """
    from ssmlbench.data import check_source, is_prepared, prepare

    if is_prepared(adapter) and not overwrite:
        task = prepare(adapter)
        check_source(adapter, task.card)
        return task
    start = time.monotonic()
    console = Console(quiet=True) if quiet else console
    if not overwrite:
        prepare_apart(adapter, skip_bad, console)
    with _progress(adapter, console) as report:
        task = prepare(adapter, skip_bad, overwrite, report)
    card, seconds = task.card, time.monotonic() - start
    rows = sum(card.rows.values())
    console.print(
        f"prepared {card.name}: {rows:,} rows in {seconds:.1f} s ({rows / seconds:,.0f} rows/s)",
        highlight=False,
    )
    if card.skipped:
        console.print(f"warning: {sum(card.skipped.values()):,} bad rows left out", highlight=False)
    for note in card.notes if notes else ():
        console.print_line(f"note: {note}")
    return task


@contextmanager
def _progress(adapter: DatasetAdapter, console: Console) -> Iterator[Callable[[str, int], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    if not console.is_terminal:
        last = time.monotonic()

        def log(split: str, rows: int) -> None:
            nonlocal last
            if time.monotonic() - last >= LOG_SECONDS:
                last = time.monotonic()
                console.print(f"preparing {adapter.name}: {rows:,} {split} rows", highlight=False)

        yield log
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bars:
        expected = {s: getattr(adapter.published, s, None) for s in ("train", "test")}
        tasks = {
            split: bars.add_task(f"{adapter.name} {split}", total=total)
            for split, total in expected.items()
        }
        yield lambda split, rows: bars.update(tasks[split], completed=rows)


def card_page(card: Card) -> RenderableType:
    """The card of a prepared data set."""
    facts = Table.grid(padding=(0, 2))
    rows = ", ".join(f"{count:,} {split}" for split, count in card.rows.items())
    means = ", ".join(f"{card.mean_labels(s):.2f} {s}" for s in card.rows)
    skipped = ", ".join(f"{count:,} ({kind})" for kind, count in card.skipped.items())
    for key, value in (
        ("kind", card.kind),
        ("rows", rows if "test" in card.rows else f"{rows}, no test rows"),
        *known_rows(card),
        ("labels", str(len(card.label_names))),
        ("labels per row", f"{card.mean_labels():.3f} ({means})"),
        ("density", f"{card.density:.4f}"),
        ("bad rows left out", skipped or "none"),
        ("licence", card.licence or "not stated"),
        ("citation", card.citation or "none"),
        ("source", card.source or "made by its adapter"),
        ("fingerprint", card.fingerprint),
        *(("note", note) for note in card.notes),
    ):
        facts.add_row(Text(key, style="bold"), Text(value))
    return Group(Text(card.name, style="bold"), facts, "", histogram(card))


def known_rows(card: Card) -> list[tuple[str, str]]:
    """The numbers of labelled and unlabelled training rows, if not all are labelled."""
    if not card.has_unknown:
        return []
    counts = (
        f"{card.labelled['train']:,} labelled, {card.partly_labelled['train']:,} partly labelled, "
        f"{card.unlabelled['train']:,} unlabelled"
    )
    return [("train rows", counts)]


def histogram(card: Card) -> Table:
    """Rows of each label, most frequent in train first."""
    table = Table(title="rows of each label", title_justify="left")
    for column, side in (("label", "left"), ("train", "right"), ("test", "right"), ("", "left")):
        table.add_column(column, justify=side)  # type: ignore[arg-type]
    train = card.positives["train"]
    test = card.positives.get("test", [0] * len(train))
    order = sorted(range(len(train)), key=lambda k: (-train[k], k))
    shown = order if len(order) <= ALL_LABELS else [*order[:15], *order[-5:]]
    for k in shown:
        bar = "█" * round(24 * train[k] / max(1, *train))
        table.add_row(Text(card.label_names[k]), f"{train[k]:,}", f"{test[k]:,}", bar)
        if len(shown) < len(order) and k == shown[14]:
            table.add_row(f"… {len(order) - len(shown)} more", "", "", "")
    return table


def damage(task: Task, adapter: DatasetAdapter) -> list[str]:
    """The damage of the files on disk, and their differences to the raw files, a line each."""
    from ssmlbench.data import recomputed_fingerprint

    try:
        task.verify()
    except DamagedFile as damaged:
        return [f"{damaged}; it is prepared again when it is used next"]
    found = [
        f"the prepared {split} file does not fit its card; prepare it again"
        for split, positives in task.card.positives.items()
        if (task.truth(split) == 1).sum(axis=0, dtype=int).tolist() != positives
        or len(task.inputs(split)) != task.card.rows[split]
    ]
    now = recomputed_fingerprint(adapter, task.card)
    if now not in (None, task.card.fingerprint):
        found.append(
            f"fingerprint: the raw files now give {now}, {task.card.fingerprint} was prepared; "
            f"`{adapter.prepare_command(task.card.source or 'FOLDER')}` prepares them again"
        )
    return found
