"""What an analysis is: the runs it reads, its options, its numbers and its figure."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ssmlbench.boards.analyses.damage import note_damage
from ssmlbench.boards.board import Board
from ssmlbench.boards.query import Query
from ssmlbench.boards.render.document import Panel, TableSection, texts
from ssmlbench.boards.report.series import where
from ssmlbench.core.commands import Sources, command
from ssmlbench.core.counts import counted
from ssmlbench.core.errors import DamagedFile, UserError
from ssmlbench.core.spec import RunSpec
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.protocol.regimes import REGIMES
from ssmlbench.runs.diagnostics import Diagnostics
from ssmlbench.runs.finished import Finished
from ssmlbench.runs.scores import StoredScores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LINES = 8
"""Methods that a figure draws; a table and the files have all."""


@dataclass(frozen=True)
class Option:
    """One option of an analysis, beside the filters that all have."""

    name: str  # with underscores; typed with dashes
    default: Any  # its type is the option's type; None: a text, or nothing
    help: str
    least: int | None = None  # of a whole number

    @property
    def flag(self) -> str:
        """The option as it is typed."""
        return f"--{self.name.replace('_', '-')}"


@dataclass(frozen=True)
class RunCell:
    """The runs of one data set and regime at one level (π or share), by row of its board."""

    board: Board
    level: str
    rows: Mapping[str, Sequence[Finished]]  # best-ranked row first, seeds in order

    @property
    def where(self) -> str:
        """`multidigits · semi π = 0.05`."""
        return where(self.board, self.level)

    @property
    def spec(self) -> RunSpec:
        """The spec of its first run: all are of one data set and regime."""
        return next(iter(self.rows.values()))[0].spec

    def command(
        self, rows: Collection[str], *words: str, level: str | None = None, lacking: bool = False
    ) -> str:
        """The command that makes runs of this cell. rows: of its board, or methods without one here.

        lacking: runs of the rows that are here lack something. A finished run is not repeated, so
        their runs are made in a results folder of their own.
        """
        first = next(iter(self.rows.values()))[0]
        methods = dict.fromkeys(
            self.rows[row][0].spec.method if row in self.rows else row for row in rows
        )
        stored = (first.folder / "result.json").is_file()  # not a line of an exported file
        results = first.folder.parents[3] if stored else Path("results").absolute()
        if lacking and any(row in self.rows for row in rows):
            results = results.with_name(f"{results.name}-again")
        return command(
            "run",
            first.spec,
            Sources.of_result(first.result),
            *("--method", ",".join(methods), *words),
            level=level or self.level,
            results=results,
        )


@dataclass(frozen=True)
class Findings:
    """What an analysis found in one place: a table for a reader, all numbers, and a figure.

    records: every number, one flat row each. draw: makes the figure, with our settings on.
    alt: the figure in a sentence.
    """

    name: str  # of the files, without extension
    where: str
    table: TableSection
    records: Sequence[Mapping[str, Any]]
    draw: Callable[[], Figure]
    alt: str = ""


class Analysis(ABC):
    """One analysis."""

    name: ClassVar[str]
    summary: ClassVar[str]  # one sentence
    options: ClassVar[tuple[Option, ...]] = ()
    arguments: ClassVar[tuple[str, ...]] = ()  # names of what is typed without a flag
    needs_runs: ClassVar[bool] = True
    in_report: ClassVar[bool] = True  # shown in `ssmlbench report` when its data are there

    @abstractmethod
    def find(
        self, cells: Sequence[RunCell], query: Query, options: Mapping[str, Any]
    ) -> list[Findings]:
        """The findings, one for each place; a UserError in one line if nothing can be found."""


def run_cells(boards: Sequence[Board]) -> list[RunCell]:
    """The cells of the boards, in their order; a row's runs by seed."""
    cells = []
    for board in boards:
        for level in board.levels:
            runs = [run for run in board.runs if run.spec.level == level and not run.diverged]
            runs.sort(key=lambda run: (run.spec.seed, run.spec.hash))
            rows = {
                row.name: [run for run in runs if board.row_of(run) == row.name]
                for row in board.rows
            }
            rows = {name: members for name, members in rows.items() if members}
            if rows:
                cells.append(RunCell(board, level, rows))
    return cells


def cells_with(cells: Sequence[RunCell], names: Sequence[str], typed: str) -> list[RunCell]:
    """The cells that have all these rows. typed: how they were named, `--of bbam`."""
    rows = dict.fromkeys(name for cell in cells for name in cell.rows)
    for name in names:
        if name not in rows:
            raise UserError(
                f"{typed}: no row {name!r} among the finished runs.{did_you_mean(name, rows)}"
            )
    complete = [cell for cell in cells if all(name in cell.rows for name in names)]
    if not complete:
        raise UserError(
            f"{typed}: {' and '.join(names)} were never run on the same data set, regime and π; "
            f"`{cells[0].command(names)}` makes such runs"
        )
    return complete


@dataclass
class Missing:
    """Runs that lack a file, and the one line that says so."""

    what: str  # "scores.safetensors", or what the diagnostics lack
    rows: dict[str, str] = field(default_factory=dict)  # row → the folder of one of its runs
    damaged: dict[str, list[str]] = field(default_factory=dict)  # row → what is wrong with files

    def note(self, name: str, folder: Path, error: Exception | None = None) -> None:
        """Note that a run of a row lacks it, or that its file is damaged."""
        self.rows.setdefault(name, str(folder))
        if error is not None and not isinstance(error, FileNotFoundError):
            known = isinstance(error, DamagedFile)
            text = str(error) if known else f"{folder / self.what} is damaged: it cannot be read"
            self.damaged.setdefault(name, []).append(text)
            note_damage(text)

    @property
    def lacking(self) -> list[str]:
        """The rows with runs that do not have it, damaged files aside."""
        return [name for name in self.rows if name not in self.damaged]

    @property
    def damage(self) -> str:
        """How many runs of which rows are left out for their files, and one of them; empty if none."""
        return "; ".join(
            f"left out, {counted(len(errors), 'run')} of {name}: {errors[0]}"
            for name, errors in self.damaged.items()
        )

    @property
    def text(self) -> str:
        """Which rows are left out, and which files are damaged; empty if none."""
        rows = ", ".join(self.lacking)
        lines = [f"left out, without {self.what}: {rows}"] if rows else []
        return "; ".join([*lines, *([self.damage] if self.damage else [])])


ScoredRuns = Mapping[str, Sequence[tuple[Finished, StoredScores]]]
"""Row → its runs that have scores, with them."""
RunsWithDiagnostics = Mapping[str, Sequence[tuple[Finished, Diagnostics]]]
"""Row → its runs that have a diagnostics file, with its content."""


def with_scores(cell: RunCell) -> tuple[ScoredRuns, Missing]:
    """The runs of each row with their stored test scores; runs without any are recorded as missing.

    All scores are in memory together: for a few runs.
    """
    scored: dict[str, list[tuple[Finished, StoredScores]]] = {}
    missing = without_scores()
    for name, run, scores in scored_runs(cell, missing):
        scored.setdefault(name, []).append((run, scores))
    return scored, missing


def without_scores() -> Missing:
    """The record of the runs that have no test scores."""
    return Missing("scores.safetensors")


def scored_runs(
    cell: RunCell, missing: Missing | None = None
) -> Iterator[tuple[str, Finished, StoredScores]]:
    """Each run with its row and its stored test scores, one at a time; notes runs without any."""
    for name, runs in cell.rows.items():
        for run in runs:
            try:
                yield name, run, StoredScores.read(run.folder)
            except (OSError, ValueError) as error:
                (missing or without_scores()).note(name, run.folder, error)


def with_diagnostics(cell: RunCell, array: str) -> tuple[RunsWithDiagnostics, Missing]:
    """The runs of each row whose diagnostics have an array; rows without any are recorded as missing."""
    with_array: dict[str, list[tuple[Finished, Diagnostics]]] = {}
    missing = Missing(
        f"records of training ({array} in diagnostics.safetensors; estimators have none)"
    )
    for name, runs in cell.rows.items():
        for run in runs:
            try:
                diagnostics = Diagnostics.read(run.folder)
            except DamagedFile as error:
                missing.note(name, run.folder, error)
                continue
            if diagnostics is not None and array in diagnostics:
                with_array.setdefault(name, []).append((run, diagnostics))
            else:
                missing.note(name, run.folder)
    return with_array, missing


def read_diagnostics(run: Finished) -> Diagnostics | None:
    """The diagnostics of a run; None if it has no readable file of them."""
    try:
        return Diagnostics.read(run.folder)
    except DamagedFile as error:
        note_damage(str(error))
        return None


def left_out(rows: Collection[str], most: int = MOST_LINES) -> str:
    """A note that a figure shows some of the rows only; empty if it shows all."""
    if len(rows) <= most:
        return ""
    return (
        f"The figure shows the first {most} of {len(rows)} rows; the table and the files have all."
    )


def label_names(cell: RunCell, labels: int) -> list[str]:
    """The labels' names, from a run that stored them; else numbers counted from 0."""
    for runs in cell.rows.values():
        for run in runs:
            diagnostics = read_diagnostics(run)
            if diagnostics is not None and len(diagnostics.label_names) == labels:
                return diagnostics.label_names
    for _, _, scores in scored_runs(cell):
        if len(scores.label_names) == labels:
            return scores.label_names
    return [str(number) for number in range(labels)]


def mean_text(values: Sequence[float], digits: int = 4) -> str:
    """The mean of the values that are defined, as a table shows it; a dash if none is."""
    defined = [value for value in values if math.isfinite(value)]
    return f"{math.fsum(defined) / len(defined):.{digits}f}" if defined else "–"


def train_rows(run: Finished) -> int:
    """Training rows of a run's data set; 0 if the run did not record them."""
    return int(run.result.get("data", {}).get("rows", {}).get("train", 0))


def nothing_recorded(
    analysis: str, cells: Sequence[RunCell], reason: str, *methods: str
) -> UserError:
    """The error of an analysis that needs the judge's diagnostics of training. methods: that have them."""
    if all(REGIMES[cell.spec.regime].as_given for cell in cells):
        return UserError(
            f"analyse {analysis}: in --regime {cells[0].spec.regime} the labels that a method does not "
            "see are unknown, and nothing is recorded about them; make runs on data whose labels are all "
            "known, e.g. with --regime semi --pi 0.1"
        )
    return nothing(analysis, reason, cells[0].command(methods, lacking=True))


def no_scores(analysis: str, cells: Sequence[RunCell]) -> UserError:
    """The error of an analysis that finds no run with scores."""
    again = cells[0].command(cells[0].rows, lacking=True)
    return nothing(analysis, "no run here has scores.safetensors", again)


def nothing(analysis: str, reason: str, command: str) -> UserError:
    """The error of an analysis that finds no data: what is missing, and the command to type."""
    return UserError(f"analyse {analysis}: {reason}; type `{command}`")


def table(
    title: str, headers: Sequence[str], rows: Sequence[Sequence[object]], *notes: str, left: int = 1
) -> TableSection:
    """A section with one table of texts."""
    body = [texts(*row) for row in rows]
    return TableSection(title, [Panel(headers, body, left)], [note for note in notes if note])
