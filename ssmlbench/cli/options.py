"""Option types that commands share, and functions that read their values."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ssmlbench.core.console import Console
from ssmlbench.core.errors import UserError
from ssmlbench.core.paths import folder_of_data
from ssmlbench.core.plain_text import one_line, printable
from ssmlbench.core.whole_numbers import MOST_DIGITS, in_usual_digits, whole_number

if TYPE_CHECKING:
    from ssmlbench.core.data_options import DataOptions
    from ssmlbench.plugins.loader import Plugins
    from ssmlbench.runs.finished import Finished

T = TypeVar("T")
MOST_NUMBERS = 100_000
"""The most numbers that a range such as `0-4` may have."""
LONGEST_TIME = 366 * 86_400
"""Seconds. The system's timers take a few hundred years, and no more."""

PluginFiles = Annotated[
    list[str] | None,
    typer.Option("--plugin", help="A plugin file, or the path of your own data; repeatable."),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        help="A folder with a folder of raw files per data set.",
        show_default="$SSMLBENCH_DATA",
        callback=folder_of_data,
    ),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave bad rows out, and count them on the card.")
]
ResultsFolders = Annotated[
    list[Path] | None,
    typer.Option("--results", help="Results folder; may be repeated.", show_default="results"),
]
LogTo = Annotated[
    str | None,
    typer.Option(
        help="Copy finished runs to tensorboard, mlflow or wandb (one or several), in RESULTS-logs.",
        show_default="nowhere",
    ),
]


def typed_list(text: str | None, kind: type[T], option: str) -> tuple[T, ...]:
    """`0.05,0.1` → (0.05, 0.1). option: for messages."""
    if text is None:
        return ()
    try:
        if kind is not str and not in_usual_digits(text):
            raise ValueError(text)
        values = tuple(
            kind(number)  # type: ignore[call-arg]
            for part in text.split(",")
            if part.strip()
            for number in (_from_to(part, option) if kind is int else (part.strip(),))
        )
    except ValueError:
        expected, example = ("whole numbers", "0,3") if kind is int else ("numbers", "0.05,0.1")
        raise UserError(
            f"{option} {text}: must be {expected}, one or several, e.g. {option} {example}"
        ) from None
    if not values:
        raise UserError(f"{option} is empty; leave it out, or type at least one value")
    return values


def _from_to(text: str, option: str) -> Iterable[str]:
    """`0-4` → 0, 1, 2, 3, 4; any other text as it is."""
    if match := re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", text):
        first, last = map(whole_number, match.groups())
        if first is None or last is None:
            raise UserError(
                f"{option} {text.strip()[:40]}…: numbers of at most {MOST_DIGITS} digits"
            )
        if last < first:
            raise UserError(f"{option} {text.strip()}: the first number must be the lower one")
        if last - first >= MOST_NUMBERS:
            raise UserError(
                f"{option} {text.strip()}: at most {MOST_NUMBERS:,} numbers may be typed so"
            )
        return map(str, range(first, last + 1))
    return (text.strip(),)


def read_runs(folders: Iterable[Path]) -> list[Finished]:
    """The finished runs below the folders; a warning for each result that cannot be read."""
    from ssmlbench.runs.finished import read_finished

    runs, complaints = read_finished(folders)
    warn(complaints)
    return runs


def warn(complaints: Iterable[str]) -> None:
    """Print each line as a warning on stderr."""
    for complaint in complaints:
        Console(stderr=True).print_line(printable(f"warning: {one_line(complaint)}"))


def wide_console() -> Console:
    """A console of the terminal's width; in a file or a pipe, wide enough for a whole table."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=160)


def load_plugins(files: list[str] | None, data_options: DataOptions | None = None) -> Plugins:
    """The built-in and installed plugins, and those of the files. data_options: for own data."""
    from ssmlbench.plugins.loader import Plugins

    return Plugins(files or (), data_options)


def key_values(texts: Sequence[str] | None, option: str, example: str) -> dict[str, str]:
    """`["loss=bce"]` → {"loss": "bce"}."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"{option} {text}: expected key=value, e.g. {option} {example}")
        if pairs.setdefault(key.strip(), value.strip()) != value.strip():
            raise UserError(
                f"{option} {key.strip()} is given twice, with {pairs[key.strip()]} and with "
                f"{value.strip()}; keep one"
            )
    return pairs


def seconds(text: str | None, option: str) -> float | None:
    """`90s`, `30m`, `2h`, `1h30m` or a plain number of seconds → seconds. option: for messages."""
    if text is None:
        return None
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)\s*([smh]?)", text)
    units = {"": 1, "s": 1, "m": 60, "h": 3600}
    value = sum(float(number) * units[unit] for number, unit in parts)
    whole = re.fullmatch(
        r"(\d+(\.\d+)?\s*h\s*)?(\d+(\.\d+)?\s*m\s*)?(\d+(\.\d+)?\s*s?)?", text.strip(), re.ASCII
    )
    if not whole or not 0 < value <= LONGEST_TIME:
        raise UserError(
            f"{option} {text[:40]}: expected a time above zero, at most a year, "
            f"e.g. {option} 90s, 30m or 2h"
        )
    return value
