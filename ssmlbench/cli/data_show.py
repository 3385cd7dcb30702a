"""`ssmlbench data show`: a data set in one page, with its labels and some of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ssmlbench.cli.data import Name, adapter_of, card_page, data_app, prepare_shown
from ssmlbench.cli.data_options import data_parameters
from ssmlbench.cli.options import DataDir, PluginFiles, SkipBad
from ssmlbench.cli.run_options import with_options
from ssmlbench.core.console import Console
from ssmlbench.core.plain_text import printable

if TYPE_CHECKING:
    from ssmlbench.data import Task
    from ssmlbench.protocol.observation import Labels

PAIRS = 15
SHOWN_CHARACTERS = 240
SHOWN_NUMBERS = 8


@data_app.command("show")
@with_options(own=data_parameters())
def show_command(
    name: Name,
    own: dict[str, Any],
    examples: Annotated[int, typer.Option(help="Rows to show.", min=0)] = 3,
    data_dir: DataDir = None,
    skip_bad: SkipBad = False,
    plugin: PluginFiles = None,
) -> None:
    """Show a data set: its card, how often labels come, alone and together, and some rows."""
    console = Console()
    adapter = adapter_of(name, plugin, None, data_dir, own)
    task = prepare_shown(adapter, skip_bad, console)
    truth = task.truth("train")
    console.print(card_page(task.card))
    console.print(rows_by_count(truth))
    console.print(pairs_table(task, truth))
    if examples:
        console.print(example_rows(task, truth, examples))


def rows_by_count(truth: Labels) -> RenderableType:
    """The numbers of training rows with 0, 1, 2, … labels."""
    from ssmlbench.data.label_pairs import labels_per_row

    counts = labels_per_row(truth)
    shown = ", ".join(f"{rows:,} with {number}" for number, rows in counts.items())
    return Text(f"\ntraining rows by number of labels: {shown or 'none is fully labelled'}\n")


def pairs_table(task: Task, truth: Labels) -> RenderableType:
    """The labels that come together most often."""
    from ssmlbench.data.label_pairs import label_pairs

    pairs = label_pairs(truth, PAIRS)
    if not pairs:
        return Text("no training row has two labels\n")
    table = Table(title="labels that come together, in train", title_justify="left")
    for column in ("label", "with"):
        table.add_column(column)
    for column in ("rows", "share of its rows", "lift"):
        table.add_column(column, justify="right")
    names = task.card.label_names
    for pair in pairs:
        first, second = (Text(printable(names[k])) for k in (pair.second, pair.first))
        table.add_row(first, second, f"{pair.rows:,}", f"{pair.share:.0%}", f"{pair.lift:.1f}")
    return table


def example_rows(task: Task, truth: Labels, count: int) -> RenderableType:
    """Some training rows, evenly spread; an unlabelled one among them if there are any."""
    ids, inputs, names = task.ids("train"), task.inputs("train"), task.card.label_names
    parts: list[RenderableType] = [Text("\nexamples, of train", style="bold")]
    for row in _spread(truth, count):
        known = truth[row]
        if (known < 0).all():
            labels = "not known"
        else:
            labels = ", ".join(names[k] for k in np.flatnonzero(known == 1)) or "none"
            if unknown := int((known < 0).sum()):
                labels += f"  ({unknown} labels not known)"
        facts = Table.grid(padding=(0, 2))
        for key, value in (
            ("id", ids[row]),
            (task.card.kind, shown_input(inputs[int(row)], task.card.kind)),
            ("labels", labels),
        ):
            facts.add_row(Text(key, style="bold"), Text(printable(value)))
        parts += [facts, ""]
    return Group(*parts)


def _spread(truth: Labels, count: int) -> list[int]:
    """Rows at even distances: of those with known labels, and the last of the others."""
    unknown = (truth < 0).all(axis=1)
    rows, others = np.flatnonzero(~unknown), np.flatnonzero(unknown)
    wanted = min(count - bool(len(others) and count > 1), len(rows))
    chosen = [int(rows[k]) for k in np.linspace(0, len(rows) - 1, wanted).round().astype(int)]
    return [*chosen, *(others[-1:].tolist() if len(chosen) < count else [])]


def shown_input(value: Any, kind: str) -> str:
    """A short text of an input."""
    if kind == "text":
        text = " ".join(str(value).split())
        return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
    array = np.asarray(value)
    if kind == "image":
        height, width, *channels = array.shape
        colour = "colour" if channels and channels[0] > 1 else "grey"
        return f"{width} × {height} pixels, {colour}, mean {array.mean():.0f} of 255"
    numbers = " ".join(f"{number:.3g}" for number in array[:SHOWN_NUMBERS])
    more = f" … ({len(array):,} numbers)" if len(array) > SHOWN_NUMBERS else ""
    return numbers + more
