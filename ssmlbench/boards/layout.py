"""Boards in the layouts of tables in papers.

`sets`: methods × (data sets × levels), one table for each metric and regime. `metrics`: methods ×
metrics, one table for each data set, regime and level. Only main boards are used; render/ writes them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ssmlbench.boards.board import Board, BoardRow, Cell, Difference
from ssmlbench.boards.columns import COSTS, Column

BOARDS, SETS, METRICS = "boards", "sets", "metrics"
LAYOUTS = (BOARDS, SETS, METRICS)


@dataclass(frozen=True)
class TableColumn:
    """One column: a metric of a board at one level."""

    board: Board
    metric: Column
    level: str

    def cell(self, row: str) -> Cell | None:
        """The cell of a row."""
        board_row = self.row(row)
        return board_row.cells.get((self.metric.key, self.level)) if board_row else None

    def row(self, name: str) -> BoardRow | None:
        """The board's row of this name."""
        return next((row for row in self.board.rows if row.name == name), None)

    def difference(self, row: str) -> Difference | None:
        """The difference of a row to the board's baseline, where the metric is the compared one."""
        board_row = self.row(row)
        return board_row.differences.get(self.level) if board_row and self.is_compared else None

    @property
    def is_compared(self) -> bool:
        """Whether the board's differences are of this metric at this level."""
        return self.metric is self.board.compared and self.level in self.board.baselines


@dataclass(frozen=True)
class LayoutTable:
    """One table of our rows: its columns, and its rows by average rank over the columns."""

    layout: str
    regime: str
    columns: Sequence[TableColumn]
    rows: Sequence[str]
    ranks: dict[str, float]  # of the rows that every column has

    @property
    def boards(self) -> list[Board]:
        """The boards that its columns come from."""
        return list({id(column.board): column.board for column in self.columns}.values())

    @property
    def metrics(self) -> list[Column]:
        """The metrics of its columns."""
        return list({column.metric.key: column.metric for column in self.columns}.values())


def layout_tables(boards: Sequence[Board], layout: str) -> list[LayoutTable]:
    """The tables of the main boards in one of the two layouts."""
    main = [board for board in boards if not board.separate_reason]
    groups: dict[tuple[str, str], list[TableColumn]] = defaultdict(list)
    for board in main:
        for metric in board.metrics:
            for level in board.levels:
                key = metric.key if layout == SETS else f"{board.dataset} {level}"
                groups[key, board.regime].append(TableColumn(board, metric, level))
    tables = []
    for (_, regime), columns in groups.items():
        ranks, partial = _average_ranks(columns), _partial_places(columns)
        names = dict.fromkeys(row.name for column in columns for row in column.board.rows)
        rows = sorted(
            (name for name in names if any(column.cell(name) for column in columns)),
            key=lambda name: (name not in ranks, ranks.get(name) or partial[name], name),
        )
        tables.append(LayoutTable(layout, regime, columns, rows, ranks))
    return tables


def _average_ranks(columns: Sequence[TableColumn]) -> dict[str, float]:
    """The average rank, over the columns, of the rows that every column has; ties share a rank.

    Costs count only if there are no metrics.
    """
    quality = [c for c in columns if c.metric.key not in COSTS] or list(columns)
    names = {row.name for row in quality[0].board.rows}
    complete = [name for name in names if all(column.cell(name) for column in quality)]
    places: dict[str, list[float]] = defaultdict(list)
    for column in quality:
        sign = -1 if column.metric.higher_is_better else 1
        values = {name: sign * cell.mean for name in complete if (cell := column.cell(name))}
        for name, value in values.items():
            better = sum(other < value for other in values.values())
            equal = sum(other == value for other in values.values())
            places[name].append(better + (equal + 1) / 2)
    return {name: math.fsum(found) / len(found) for name, found in places.items()}


def _partial_places(columns: Sequence[TableColumn]) -> dict[str, float]:
    """The share of rows that are better, averaged over the columns that a row has."""
    shares: dict[str, list[float]] = defaultdict(list)
    for column in columns:
        sign = -1 if column.metric.higher_is_better else 1
        cells = {row.name: column.cell(row.name) for row in column.board.rows}
        values = {name: sign * cell.mean for name, cell in cells.items() if cell is not None}
        for name, value in values.items():
            better = sum(other < value for other in values.values())
            shares[name].append(better / len(values))
    return {name: math.fsum(found) / len(found) for name, found in shares.items()}
