"""Finished runs → boards: one a data set, regime and setting, with mean ± std over seeds.

Runs that were not made alike (other encoder, other epochs, other protocol) never share a cell: they
form a board of their own that says what is different. How a board looks is render's business.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ssmlbench.boards.columns import COLUMNS, COSTS, Column
from ssmlbench.core.code_versions import is_old_digest
from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import REGIME_NUMBERS, SETTING, RunSpec
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.protocol.decisions import RULES
from ssmlbench.protocol.metrics import METRICS
from ssmlbench.runs.finished import Finished


@dataclass(frozen=True)
class Query:
    """Which runs to show, and how their scores become label sets."""

    datasets: tuple[str, ...] = ()
    regimes: tuple[str, ...] = ()
    # of the regimes, by field of the spec: {"pi": (0.05, 0.1)}
    numbers: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    methods: tuple[str, ...] = ()
    selections: tuple[str, ...] = ()
    metrics: tuple[str, ...] = field(default_factory=lambda: tuple(METRICS))
    decision: str = "calibrated"
    convention: str = "default"
    draws: int = 0  # of the bootstrap over test rows; 0 for no intervals

    def __post_init__(self) -> None:
        for key in self.metrics:
            if key not in COLUMNS:
                raise UserError(f"--metric {key}: no such metric.{did_you_mean(key, COLUMNS)}")
        if self.decision not in RULES:
            raise UserError(f"--decision {self.decision}: must be one of {', '.join(RULES)}")
        if self.draws < 0 or 0 < self.draws < 100:
            raise UserError(
                f"--bootstrap {self.draws}: too few draws for a 95 % interval; take e.g. 1000"
            )

    def wants(self, spec: RunSpec) -> bool:
        return (
            (not self.datasets or spec.dataset in self.datasets)
            and (not self.regimes or spec.regime in self.regimes)
            and self.wants_number(spec.regime, spec.regime_number)
            and (not self.methods or spec.method in self.methods)
            and (not self.selections or spec.selection in self.selections)
        )

    def wants_number(self, regime: str, number: float | None) -> bool:
        """Whether a regime's number is one of those asked for, if any is."""
        option = REGIME_NUMBERS.get(regime)
        asked = self.numbers.get(option.name) if option else None
        return not asked or number in asked

    def value(self, run: Finished, metric: str) -> float:
        if metric in run.result["cost"]:
            return float(run.result["cost"][metric])
        return float(run.result["metrics"][self.decision][self.convention][metric])


@dataclass(frozen=True)
class Cell:
    """One number of a board."""

    mean: float
    std: float | None  # None for a single seed
    seeds: tuple[int, ...]
    values: tuple[float, ...] = ()  # one a seed
    place: int = 0  # 1 best, 2 second, of its column
    interval: tuple[float, float] | None = None  # over test rows, where asked for


@dataclass
class BoardRow:
    name: str
    cells: dict[tuple[str, str], Cell]  # by (metric key, level)
    rank: float = math.nan  # average place over the board's columns
    trials: int = 0  # of the study its hyper-parameters come from; 0: not tuned


@dataclass
class Board:
    """One table: its rows ordered by average rank, and everything that must be said beside it."""

    dataset: str
    regime: str
    levels: list[str]  # the πs or shares, "" where the regime has none
    metrics: list[Column]
    decision: str
    selection: str
    convention: str
    setting: dict[str, Any]
    rows: list[BoardRow]
    apart: str = ""  # why this is not in the main table of its data set and regime
    missing: list[str] = field(default_factory=list)
    diverged: list[str] = field(default_factory=list)  # trials of a study without scores
    # what the numbers come from; not what the board is
    runs: list[Finished] = field(default_factory=list, repr=False, compare=False)

    @property
    def budgets(self) -> dict[int, list[str]]:
        """The rows by how many trials they were tuned with, most first: one entry if it is fair."""
        found: dict[int, list[str]] = {}
        for row in sorted(self.rows, key=lambda row: -row.trials):
            found.setdefault(row.trials, []).append(row.name)
        return found

    @property
    def axis(self) -> str:
        """What its levels are called; empty where the regime has none."""
        return number.symbol if (number := REGIME_NUMBERS.get(self.regime)) else ""

    @property
    def columns(self) -> list[tuple[Column, str]]:
        return [(metric, level) for metric in self.metrics for level in self.levels]


def build_boards(runs: Iterable[Finished], query: Query) -> list[Board]:
    """The boards of all runs the query wants, main tables before those that stand apart."""
    groups: dict[tuple[str, str], list[Finished]] = defaultdict(list)
    for run in runs:
        if query.wants(run.spec):
            groups[run.spec.dataset, run.spec.regime].append(run)
    return [board for key in sorted(groups) for board in _boards_of_group(groups[key], query)]


def _boards_of_group(runs: Sequence[Finished], query: Query) -> list[Board]:
    by_setting: dict[tuple[Any, ...], list[Finished]] = defaultdict(list)
    for run in runs:
        by_setting[tuple(_setting(run.spec, name) for name in SETTING)].append(run)
    # The main table is the one with most runs; equal counts: the longer training.
    ordered = sorted(by_setting.items(), key=lambda item: (-len(item[1]), -item[1][0].spec.epochs))
    main = dict(zip(SETTING, ordered[0][0], strict=True))
    boards = []
    for values, members in ordered:
        setting = dict(zip(SETTING, values, strict=True))
        reasons = [f"{k} {v} instead of {main[k]}" for k, v in setting.items() if v != main[k]]
        current, outdated = _split_by_code(members)
        boards.append(_board(current, query, setting, ", ".join(reasons)))
        if outdated:
            why = [*reasons, changed_code_reason(outdated, current)]
            boards.append(_board(outdated, query, setting, ", ".join(why)))
    return boards


def _setting(spec: RunSpec, name: str) -> Any:
    if name == "lr":  # a tuned run stands with those made at the rate it was tuned around
        return spec.tuned.get("lr", spec.lr)
    return spec.backbone_name if name == "backbone" else getattr(spec, name)


def changed_code_reason(outdated: Sequence[Finished], current: Sequence[Finished]) -> str:
    """Why runs are not shown with those of their methods' present code."""
    covered = {run.spec.method for run in current if not is_old_digest(run.spec.code)}
    reasons = {
        "made before digests covered the code that a method shares with others"
        if is_old_digest(run.spec.code) and run.spec.method in covered
        else "made with another version of the method's code"
        for run in outdated
    }
    return "; ".join(sorted(reasons))


def _split_by_code(runs: Sequence[Finished]) -> tuple[list[Finished], list[Finished]]:
    """Runs of each method's newest code, and the rest."""
    versions: dict[str, dict[str, list[Finished]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        versions[run.spec.method][run.spec.code].append(run)
    kept = {
        method: max(
            codes,
            key=lambda code: (
                not is_old_digest(code),
                max(run.finished_at for run in codes[code]),
                code,
            ),
        )
        if len(codes) > 1
        else next(iter(codes))
        for method, codes in versions.items()
    }
    current = [run for run in runs if run.spec.code == kept[run.spec.method]]
    return current, [run for run in runs if run.spec.code != kept[run.spec.method]]


def level_of(spec: RunSpec) -> str:
    """The number of the run's regime as a board prints it; empty where the regime has none."""
    return "" if spec.regime_number is None else f"{spec.regime_number:g}"


def _board(runs: Sequence[Finished], query: Query, setting: dict[str, Any], apart: str) -> Board:
    spec = runs[0].spec
    levels = sorted({level_of(run.spec) for run in runs}, key=lambda level: float(level or 0))
    chosen = [COLUMNS[key] for key in query.metrics]
    cells: dict[tuple[str, str], list[Finished]] = defaultdict(list)
    for run in runs:
        if not run.diverged:
            cells[run.spec.variant, level_of(run.spec)].append(run)
    rows = []
    for name in sorted({run.spec.variant for run in runs}):
        one = next(run.spec for run in runs if run.spec.variant == name)
        row = BoardRow(name, {}, trials=one.tuned.get("trials", 0))
        for level in levels:
            if (name, level) in cells:
                made = _cells(cells[name, level], query)
                row.cells |= {(key, level): cell for key, cell in made.items()}
        rows.append(row)
    board = Board(
        spec.dataset,
        spec.regime,
        levels,
        chosen,
        query.decision,
        str(setting["selection"]),
        query.convention,
        setting,
        rows,
        apart,
    )
    _rank(board)
    board.missing = _missing(board)
    board.diverged = [
        f"{run.spec.variant} seed {run.spec.seed} ({run.diverged})" for run in runs if run.diverged
    ]
    board.runs = list(runs)
    return board


def _cells(runs: Sequence[Finished], query: Query) -> dict[str, Cell]:
    """The runs of one method at one level, as one cell a metric."""
    by_seed = sorted(runs, key=lambda run: run.spec.seed)
    seeds = tuple(run.spec.seed for run in by_seed)
    intervals = _intervals(by_seed, query) if query.draws else {}
    cells = {}
    for key in query.metrics:
        values = tuple(query.value(run, key) for run in by_seed)
        mean, std = _mean_and_std(values)
        cells[key] = Cell(mean, std, seeds, values, interval=intervals.get(key))
    return cells


def _mean_and_std(values: Sequence[float]) -> tuple[float, float | None]:
    """The sample's; NumPy takes ten times as long on a handful of seeds."""
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return mean, None
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


def _intervals(runs: Sequence[Finished], query: Query) -> dict[str, tuple[float, float]]:
    from ssmlbench.boards.bootstrap import bootstrap
    from ssmlbench.runs.scores import StoredScores

    metrics = [key for key in query.metrics if key in METRICS]
    try:
        scores = [StoredScores.read(run.folder) for run in runs]
    except (OSError, ValueError) as error:
        raise UserError(
            f"--bootstrap needs the runs' stored scores ({error}): give the results folder (--results) "
            "that has them, or leave --bootstrap out"
        ) from None
    return bootstrap(scores, metrics, query.decision, query.convention, query.draws)


def _rank(board: Board) -> None:
    """Places within each column, ties sharing the mean place; rows by their average.

    What a method costs is shown, and ranked by only where nothing else is.
    """
    places: dict[str, list[float]] = defaultdict(list)
    for metric, level in board.columns:
        present = [row for row in board.rows if (metric.key, level) in row.cells]
        sign = -1 if metric.higher_is_better else 1
        values = np.array([sign * row.cells[metric.key, level].mean for row in present])
        for row, value in zip(present, values, strict=True):
            better, equal = int((values < value).sum()), int((values == value).sum())
            cell = row.cells[metric.key, level]
            row.cells[metric.key, level] = replace(cell, place=better + 1)
            if metric.key not in COSTS or all(m.key in COSTS for m in board.metrics):
                places[row.name].append(better + (equal + 1) / 2)
    for row in board.rows:
        row.rank = float(np.mean(places[row.name])) if places[row.name] else math.nan
    board.rows.sort(key=lambda row: (math.isnan(row.rank), row.rank, row.name))


def _missing(board: Board) -> list[str]:
    """What a full grid over the board's methods, levels and seeds would have that is not there."""
    key = board.metrics[0].key
    seeds = {s for row in board.rows for cell in row.cells.values() for s in cell.seeds}
    lines = []
    for row in board.rows:
        for level in board.levels:
            cell = row.cells.get((key, level))
            absent = sorted(seeds - set(cell.seeds if cell else ()))
            if absent:
                where = f" {board.axis} {level}" if board.axis else ""
                lines.append(f"{row.name}{where}: seed {', '.join(map(str, absent))}")
    return lines
