"""The papers' numbers and ours together, in the layouts of layout.py."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ssmlbench.boards.board import Board, level_number
from ssmlbench.boards.columns import COLUMNS, Column
from ssmlbench.boards.layout import SETS, LayoutTable, TableColumn, layout_tables
from ssmlbench.boards.published import PublishedValue
from ssmlbench.boards.side_by_side import JoinedRow, SideBySide

PaperRow = tuple[str, str]
"""A row of a paper: the paper's key and its name of the method."""


@dataclass(frozen=True)
class JoinedColumn:
    """One data set at one level in one metric: the papers' numbers, and ours."""

    dataset: str
    level: str
    metric: Column
    rows: Sequence[JoinedRow]  # of the data set; none where no paper has it
    ours: TableColumn | None  # None where we have no run

    @cached_property
    def papers(self) -> dict[PaperRow, JoinedRow]:
        """The papers' rows that have a number here."""
        found = {}
        for row in self.rows:
            if value := row.published.get((self.metric.key, self.level)):
                found[value.paper.key, value.paper_method] = row
        return found

    def published(self, row: PaperRow) -> PublishedValue | None:
        """The paper's number in a row, if it has one."""
        joined = self.papers.get(row)
        return joined.published[self.metric.key, self.level] if joined else None

    def difference(self, row: PaperRow) -> float | None:
        """Ours less the paper's, where there are both on the same data."""
        joined = self.papers.get(row)
        return joined.difference(self.metric.key, self.level) if joined else None


@dataclass(frozen=True)
class JoinedTable:
    """One table: columns, the papers' rows in their order, and our table of the same columns."""

    layout: str
    regime: str
    columns: Sequence[JoinedColumn]
    papers: Sequence[PaperRow]
    ours: LayoutTable | None


def joined_tables(
    tables: Sequence[SideBySide], boards: Sequence[Board], layout: str
) -> list[JoinedTable]:
    """The tables of one layout: first of the data sets that papers and we have, then of the others."""
    main = [board for board in boards if not board.separate_reason]
    theirs = {(table.dataset, table.regime) for table in tables}
    ours = {(board.dataset, board.regime) for board in main}
    found = []
    for wanted in (theirs & ours, ours - theirs, theirs - ours):
        found += _tables(
            [table for table in tables if (table.dataset, table.regime) in wanted],
            [board for board in main if (board.dataset, board.regime) in wanted],
            layout,
        )
    return found


def _tables(
    tables: Sequence[SideBySide], boards: Sequence[Board], layout: str
) -> list[JoinedTable]:
    ours = {_group(layout, _place(t.columns[0])): t for t in layout_tables(boards, layout)}
    measured = {_place(c): c for table in ours.values() for c in table.columns}
    joined = {(table.dataset, table.regime): table.rows for table in tables}
    places = dict.fromkeys(
        (table.dataset, table.regime, level, metric)
        for table in tables
        for metric in table.metrics
        for level in table.levels
        if any((metric, level) in row.published for row in table.rows)
    )
    places |= dict.fromkeys(measured)
    groups: dict[tuple[str, ...], list[JoinedColumn]] = defaultdict(list)
    for place in places:
        dataset, regime, level, metric = place
        rows = joined.get((dataset, regime), ())
        groups[_group(layout, place)].append(
            JoinedColumn(dataset, level, COLUMNS[metric], rows, measured.get(place))
        )
    order = list(dict.fromkeys(dataset for dataset, *_ in places))
    return [
        JoinedTable(
            layout,
            key[-1],
            sorted(columns, key=lambda c: (order.index(c.dataset), level_number(c.level))),
            list(dict.fromkeys(row for column in columns for row in column.papers)),
            ours.get(key),
        )
        for key, columns in groups.items()
    ]


def _place(column: TableColumn) -> tuple[str, str, str, str]:
    return column.board.dataset, column.board.regime, column.level, column.metric.key


def _group(layout: str, place: tuple[str, str, str, str]) -> tuple[str, ...]:
    """The key that the columns of one table share."""
    dataset, regime, level, metric = place
    return (metric, regime) if layout == SETS else (dataset, level, regime)
