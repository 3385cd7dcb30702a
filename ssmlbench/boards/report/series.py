"""The series that figures show, as plain numbers from boards. Nothing is drawn or read from disk here."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ssmlbench.boards.board import Board
from ssmlbench.boards.columns import Column
from ssmlbench.boards.query import Query
from ssmlbench.boards.render import title
from ssmlbench.protocol.metrics import METRICS
from ssmlbench.runs.finished import Finished

BASELINE = "bce"
"""The labelled-only method: named in every figure in which it has runs."""
TOP = 5
"""Methods that a figure of many lines names: the best ranked of the board, besides the baseline."""
MOST_DOTS = 40
FEW = 7
"""A figure of at most this many methods names them all."""


@dataclass(frozen=True)
class Line:
    """A mean with its spread (sample std over seeds, 0 for one seed) along x."""

    name: str
    x: tuple[float, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class Series(ABC):
    """The numbers of one figure, with its title and its text alternative."""

    where: str  # the board, or one level of it

    @property
    @abstractmethod
    def title(self) -> str:
        """The title of the figure."""

    @property
    @abstractmethod
    def alt(self) -> str:
        """The figure in words, for those who do not see it."""


@dataclass(frozen=True)
class OverLevels(Series):
    """One metric of a board over its πs (or shares), one line per method."""

    axis: str  # "π", or "share"
    metric: Column
    lines: tuple[Line, ...]
    named: tuple[str, ...]

    @property
    def title(self) -> str:
        """The title of the figure."""
        return f"{self.metric.title} over {self.axis}"

    @property
    def alt(self) -> str:
        """The best method at the last level."""
        last = max(x for line in self.lines for x in line.x)
        at_last = [(line.mean[-1], line.name) for line in self.lines if line.x[-1] == last]
        best = max(at_last) if self.metric.higher_is_better else min(at_last)
        return (
            f"{self.where}: {self.metric.title} of {len(self.lines)} methods over {self.axis}. "
            f"Best at {self.axis} = {last:g}: {best[1]} with {best[0]:.4f}."
        )


@dataclass(frozen=True)
class Dot:
    """One method: its mean, its spread and each seed's value."""

    name: str
    mean: float
    std: float
    values: tuple[float, ...]  # one for each seed


@dataclass(frozen=True)
class Dots(Series):
    """One metric of a board with a single level: one row per method, best on top."""

    metric: Column
    dots: tuple[Dot, ...]
    left_out: int  # rows beyond those shown

    @property
    def title(self) -> str:
        """The title of the figure."""
        return self.metric.title

    @property
    def alt(self) -> str:
        """The best and the worst method."""
        best, worst = self.dots[0], self.dots[-1]
        return (
            f"{self.where}: {self.metric.title} of {len(self.dots)} methods, from {best.name} "
            f"({best.mean:.4f}) to {worst.name} ({worst.mean:.4f})."
        )


@dataclass(frozen=True)
class Point:
    """One method: what it costs and how good it is."""

    name: str
    cost: float
    quality: float


@dataclass(frozen=True)
class CostQuality(Series):
    """The cost of the methods of a board against their quality, at one level."""

    cost: Column
    quality: Column
    points: tuple[Point, ...]
    front: tuple[str, ...]  # nobody is both cheaper and better; cheapest first
    named: tuple[str, ...]

    @property
    def title(self) -> str:
        """The title of the figure."""
        return f"{self.quality.title} against {self.cost.title}"

    @property
    def alt(self) -> str:
        """The methods on the front."""
        return (
            f"{self.where}: {self.quality.title} against {self.cost.title} of "
            f"{len(self.points)} methods. No other is both cheaper and better than: "
            f"{', '.join(self.front)}."
        )


@dataclass(frozen=True)
class CriticalDifference(Series):
    """Average ranks over cells, and which neighbours Nemenyi's test does not separate."""

    metric: Column
    names: tuple[str, ...]  # best average rank first
    ranks: tuple[float, ...]
    difference: float
    cliques: tuple[tuple[int, int], ...]  # first and last index of each group in `names`
    about: str  # what the ranks are averaged over
    p: float  # Friedman's
    named: tuple[str, ...]

    @property
    def title(self) -> str:
        """The title of the figure."""
        return f"Critical difference, {self.metric.title}"

    @property
    def alt(self) -> str:
        """All average ranks, and the tests."""
        ranks = ", ".join(f"{n} {r:.2f}" for n, r in zip(self.names, self.ranks, strict=True))
        return (
            f"{self.where}: average ranks by {self.metric.title} over {self.about}: {ranks}. Methods less "
            f"than {self.difference:.2f} apart do not differ at 0.05 (Nemenyi); Friedman p = {self.p:.3g}."
        )


def named(ranked: Sequence[str]) -> tuple[str, ...]:
    """Return the methods that a figure names: all if few, else the best ranked and the baseline."""
    if len(ranked) <= FEW:
        return tuple(ranked)
    return tuple(name for i, name in enumerate(ranked) if i < TOP or name == BASELINE)


def runs_by_cell(board: Board) -> dict[tuple[str, str], list[Finished]]:
    """Return the board's runs by (row name, level), seeds in order."""
    cells: dict[tuple[str, str], list[Finished]] = defaultdict(list)
    for run in sorted(board.runs, key=lambda run: (run.spec.seed, run.spec.hash)):
        cells[board.row_of(run), run.spec.level].append(run)
    return cells


def where(board: Board, level: str) -> str:
    """`toy · semi π = 0.1`: a board's name with one of its levels."""
    if not level or len(board.levels) == 1:
        return title(board)
    return f"{title(board)} {board.axis} = {level}"


def over_levels(board: Board, metric: Column) -> OverLevels:
    """Return one metric of all rows over the board's levels."""
    lines = []
    for row in board.rows:
        cells = [(float(lv), row.cells.get((metric.key, lv))) for lv in board.levels]
        present = [(x, cell) for x, cell in cells if cell is not None]
        if present:
            lines.append(
                Line(
                    row.name,
                    tuple(x for x, _ in present),
                    tuple(cell.mean for _, cell in present),
                    tuple(cell.std or 0.0 for _, cell in present),
                )
            )
    names = named([row.name for row in board.rows])
    return OverLevels(title(board), board.axis, metric, tuple(lines), names)


def dots(board: Board, metric: Column, level: str) -> Dots:
    """Return one metric of the best MOST_DOTS rows, and of the baseline, at one level."""
    found = []
    for row in board.rows:
        cell = row.cells.get((metric.key, level))
        if cell is not None:
            found.append(Dot(row.name, cell.mean, cell.std or 0.0, cell.values))
    sign = -1 if metric.higher_is_better else 1
    found.sort(key=lambda dot: (sign * dot.mean, dot.name))
    kept = [dot for i, dot in enumerate(found) if i < MOST_DOTS or dot.name == BASELINE]
    return Dots(where(board, level), metric, tuple(kept), len(found) - len(kept))


def quality_metric(query: Query) -> Column:
    """Return the metric of quality: mAP if the query has it (no decision rule), else its first."""
    wanted = [METRICS[key] for key in query.metrics if key in METRICS]
    return METRICS["map"] if METRICS["map"] in wanted or not wanted else wanted[0]


def cost_quality(board: Board, query: Query, cost: Column, level: str) -> CostQuality:
    """Return cost and quality of all rows at one level; rows without finite numbers are left out."""
    quality = quality_metric(query)
    points = []
    for (name, at), runs in runs_by_cell(board).items():
        if at == level:
            values = [[query.value(run, m.key) for run in runs] for m in (cost, quality)]
            point = Point(name, float(np.mean(values[0])), float(np.mean(values[1])))
            if math.isfinite(point.cost) and math.isfinite(point.quality):
                points.append(point)
    points.sort(key=lambda p: p.name)
    front = pareto_front(points, quality.higher_is_better)
    names = named([row.name for row in board.rows])
    return CostQuality(where(board, level), cost, quality, tuple(points), front, names)


def pareto_front(points: Iterable[Point], higher_is_better: bool) -> tuple[str, ...]:
    """Return the Pareto front, cheapest first: no other point is as good in both and better in one."""
    sign = 1 if higher_is_better else -1
    ordered = sorted(points, key=lambda p: (p.cost, -sign * p.quality, p.name))
    front: list[Point] = []
    for point in ordered:
        ahead = not front or sign * point.quality > sign * front[-1].quality
        twin = bool(front) and (point.cost, point.quality) == (front[-1].cost, front[-1].quality)
        if ahead or twin:
            front.append(point)
    return tuple(point.name for point in front)
