"""Turns history.csv files into curves over epochs: the mean over seeds of each column, and its spread."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ssmlbench.boards.board import Board
from ssmlbench.boards.report.series import Line, Series, named, runs_by_cell, where
from ssmlbench.core.csv_cells import cell_text
from ssmlbench.core.history_columns import PROGRESS
from ssmlbench.core.plain_files import plain_text
from ssmlbench.runs.finished import Finished
from ssmlbench.runs.folder import RunFolder

PSEUDO = {
    "pseudo_precision": "Precision of the pseudo-labels",
    "pseudo_recall": "Recall of the pseudo-labels",
    "pseudo_trusted": "Trusted share of the pseudo-labels",
}
MOST_EPOCHS = 100
"""The most epochs of a curve; longer histories are downsampled evenly, and keep the last epoch."""


@dataclass(frozen=True)
class History:
    """One run's history: its columns, NaN where an epoch has no value."""

    epochs: tuple[int, ...]
    warm_up: int  # epochs of labelled rows alone
    columns: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Curves(Series):
    """The losses, or the other values that were logged, of one method at one level."""

    method: str
    what: str  # "losses", or "diagnostics"
    lines: tuple[Line, ...]  # one for each column
    warm_up: int
    seeds: int

    @property
    def title(self) -> str:
        """The title of the figure."""
        return f"{self.method}: {self.what}"

    @property
    def alt(self) -> str:
        """The values after the last epoch."""
        ends = ", ".join(f"{line.name} {line.mean[-1]:.4g}" for line in self.lines)
        return (
            f"{self.where}: {self.what} of {self.method} over epochs, mean of {self.seeds} "
            f"seed{'s' * (self.seeds != 1)}. After the last epoch: {ends}."
        )


@dataclass(frozen=True)
class PseudoLabels(Series):
    """One measure of the pseudo-labels' quality over epochs, one line per method."""

    column: str
    lines: tuple[Line, ...]
    named: tuple[str, ...]
    warm_up: int

    @property
    def title(self) -> str:
        """The title of the figure."""
        return PSEUDO[self.column]

    @property
    def alt(self) -> str:
        """The best method after the last epoch."""
        best = max(self.lines, key=lambda line: line.mean[-1])
        return (
            f"{self.where}: {self.title.lower()} of {len(self.lines)} methods over epochs. Highest "
            f"after the last epoch: {best.name} with {best.mean[-1]:.4f}."
        )


def read_history(run: Finished) -> History | None:
    """Read a run's history; None without a valid file, NaN for a number that cannot be read."""
    folder = RunFolder(run.folder)
    try:
        folder.verify(folder.history_file.name)
        with plain_text(folder.history_file) as file:
            table = csv.DictReader(file)
            table.fieldnames = [cell_text(name) for name in table.fieldnames or ()]
            rows = list(table)
        epochs = tuple(int(row["epoch"]) for row in rows)
        warm_up = sum(row["phase"] == "warm-up" for row in rows)
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        return None
    if not rows or any(b <= a for a, b in itertools.pairwise(epochs)):
        return None
    names = [name for name in rows[0] if name and name not in PROGRESS]
    return History(
        epochs, warm_up, {name: tuple(_number(row[name]) for row in rows) for name in names}
    )


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan


def mean_curve(name: str, histories: Sequence[History], column: str) -> Line | None:
    """Return mean ± std over the histories for each epoch with a value; None if there is none."""
    by_epoch: dict[int, list[float]] = {}
    for history in histories:
        for epoch, value in zip(history.epochs, history.columns.get(column, ()), strict=False):
            if math.isfinite(value):
                by_epoch.setdefault(epoch, []).append(value)
    if not by_epoch:
        return None
    epochs = downsampled(sorted(by_epoch))
    mean, std = _mean_and_std([by_epoch[epoch] for epoch in epochs])
    return Line(name, tuple(map(float, epochs)), mean, std)


def _mean_and_std(values: list[list[float]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each list; the deviation of a single value is 0."""
    parts = [values] if len({len(one) for one in values}) == 1 else [[one] for one in values]
    tables = [np.array(part) for part in parts]  # one table if every epoch has as many values
    means = [table.mean(axis=1) for table in tables]
    spreads = [table.std(axis=1, ddof=1 if table.shape[1] > 1 else 0) for table in tables]
    return tuple(np.concatenate(means).tolist()), tuple(np.concatenate(spreads).tolist())


def downsampled(epochs: Sequence[int]) -> list[int]:
    """Return at most `MOST_EPOCHS` of the epochs, evenly spaced, the last one included."""
    step = math.ceil(len(epochs) / MOST_EPOCHS)
    return list(epochs[::-1][::step][::-1])


class CellHistories:
    """The histories of one level of a board by method, each file read once."""

    def __init__(self, board: Board, level: str) -> None:
        self.where = where(board, level)
        self.dataset = board.dataset
        cells = runs_by_cell(board)
        self.by_method: dict[str, list[History]] = {}
        self.unreadable = 0
        for row in board.rows:
            read = [read_history(run) for run in cells.get((row.name, level), ())]
            histories = [history for history in read if history is not None]
            self.unreadable += len(read) - len(histories)
            if histories:
                self.by_method[row.name] = histories

    def curves(self, method: str) -> list[Curves]:
        """Return the losses and, if other values were logged, the diagnostics of one method."""
        histories = self.by_method[method]
        names = list(dict.fromkeys(name for h in histories for name in h.columns))
        curves = []
        for what, is_loss in (("losses", True), ("diagnostics", False)):
            lines = [
                mean_curve(name.removeprefix("loss_") if is_loss else name, histories, name)
                for name in names
                if name.startswith("loss_") == is_loss
            ]
            present = tuple(line for line in lines if line is not None)
            if present:
                warm_up = max(h.warm_up for h in histories)
                curves.append(Curves(self.where, method, what, present, warm_up, len(histories)))
        return curves

    def pseudo_labels(self) -> list[PseudoLabels]:
        """Return one series for each measure that at least one method logged."""
        series = []
        for column in PSEUDO:
            lines = [mean_curve(name, hs, column) for name, hs in self.by_method.items()]
            present = tuple(line for line in lines if line is not None)
            if present:
                names = named([line.name for line in present])
                warm_up = max(h.warm_up for hs in self.by_method.values() for h in hs)
                series.append(PseudoLabels(self.where, column, present, names, warm_up))
        return series
