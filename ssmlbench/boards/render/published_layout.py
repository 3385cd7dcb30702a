"""The papers' numbers and ours in the layouts of papers, as a document: papers' rows above, ours below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ssmlbench.boards.board import Board
from ssmlbench.boards.layout import METRICS, SETS
from ssmlbench.boards.published import PublishedValue
from ssmlbench.boards.published_layout import (
    JoinedColumn,
    JoinedTable,
    PaperRow,
    joined_tables,
)
from ssmlbench.boards.render.document import DASH, Document, Entry, Panel, TableSection, texts
from ssmlbench.boards.render.layout import has_rank, rank_of, table_notes, table_row_name
from ssmlbench.boards.render.names import RowNames
from ssmlbench.boards.render.notes import data_notes, marked_dataset, rule_mark
from ssmlbench.boards.render.numbers import NumberStyle
from ssmlbench.boards.render.side_by_side import (
    DELTA_NOTE,
    NO_RUN_NOTE,
    SELECTED_NOTE,
    delta_text,
    fitting_top_k,
    paper_notes,
    printed_text,
    top_k_mark,
    value_places,
)
from ssmlbench.boards.rule_audit import AuditedRow, RowKey
from ssmlbench.boards.side_by_side import SideBySide
from ssmlbench.core.spec import REGIME_NUMBERS

OURS = "ours"
"""The source of our rows."""


@dataclass(frozen=True)
class _Writer:
    """Writes the cells of one table."""

    table: JoinedTable
    top_k: set[RowKey]
    style: NumberStyle
    names: RowNames

    @property
    def entries(self) -> list[PublishedValue]:
        """The papers' numbers that the table shows."""
        found = (c.published(row) for row in self.table.papers for c in self.table.columns)
        return [entry for entry in found if entry]

    @property
    def boards(self) -> list[Board]:
        """Our boards."""
        return self.table.ours.boards if self.table.ours else []

    def section(self, left_out: int) -> TableSection:
        table = self.table
        panels = [self._values()]
        differences = self._differences()
        panels += [differences] if differences else []
        first = table.columns[0]
        about = first.metric.key if table.layout == SETS else f"{first.dataset} {first.level}"
        sources = f"{'papers' if table.papers else ''} {OURS if table.ours else ''}"
        key = f"{about} {table.regime} {sources}"
        return TableSection(
            self._title(), panels, self._notes(left_out, bool(differences)), key=key
        )

    def _title(self) -> str:
        unit = " (%)" if self.style.percent else ""
        columns = self.table.columns
        metrics = ", ".join(dict.fromkeys(column.metric.title for column in columns))
        sets = ", ".join(dict.fromkeys(map(self._dataset, columns)))
        level = columns[0].level if self.table.layout == METRICS else ""
        at = f" {self._symbol} = {level}" if level else ""
        sources = ["papers"] if self.table.papers else []
        sources += [OURS] if self.table.ours else []
        return f"{metrics}{unit} on {sets} ({self.table.regime}{at}): {' and '.join(sources)}"

    @property
    def _symbol(self) -> str:
        return REGIME_NUMBERS[self.table.regime].symbol

    def _dataset(self, column: JoinedColumn) -> str:
        other = bool(column.ours and column.ours.board.unlike_published)
        return marked_dataset(column.dataset, other)

    def _heads(self) -> tuple[list[str], list[str]]:
        """The headers of the columns, and the headings above them."""
        headers, groups = [], []
        for column in self.table.columns:
            metric = f"{column.metric.title} {'↑' if column.metric.higher_is_better else '↓'}"
            by_set = self.table.layout == SETS
            headers.append(f"{self._symbol}={column.level}" if by_set and column.level else metric)
            groups.append(self._dataset(column) if by_set else "")
        return headers, groups

    def _panel(
        self,
        first: Sequence[str],
        rows: list[list[Entry]],
        title: str,
        breaks: Sequence[int] = (),
        last: Sequence[str] = (),
    ) -> Panel:
        headers, groups = self._heads()
        above = [*[""] * len(first), *groups, *[""] * len(last)] if any(groups) else []
        return Panel(
            [*first, *headers, *last],
            rows,
            left=len(first),
            groups=above,
            title=title,
            breaks=breaks,
        )

    def _values(self) -> Panel:
        papers = [self._paper_column(column) for column in self.table.columns]
        rows = [
            [
                *texts(row[1], self._source(row)),
                *(cells[i] for cells in papers),
                *texts(*(DASH for _ in self._rank_header)),
            ]
            for i, row in enumerate(self.table.papers)
        ]
        ours = [] if self.table.ours is None else list(self.table.ours.rows)
        breaks = [len(rows)] if rows and ours else []
        for name in ours:
            assert self.table.ours is not None
            shown = table_row_name(self.table.ours, name, self.names)
            ranks = texts(*(rank_of(self.table.ours, name) for _ in self._rank_header))
            cells = [self._our_cell(column, name) for column in self.table.columns]
            rows.append([*texts(shown, OURS), *cells, *ranks])
        metrics = dict.fromkeys(column.metric.title for column in self.table.columns)
        first, title = ["method", "source"], ", ".join(metrics)
        return self._panel(first, rows, title, breaks, self._rank_header)

    @property
    def _rank_header(self) -> list[str]:
        """The header of the average rank of ours over our columns, where there are several."""
        return ["rank"] if self.table.ours and has_rank(self.table.ours) else []

    def _source(self, row: PaperRow) -> str:
        return next(
            entry.paper.name for c in self.table.columns if (entry := c.published(row)) is not None
        )

    def _paper_column(self, column: JoinedColumn) -> list[Entry]:
        found = [column.published(row) for row in self.table.papers]
        places = value_places(
            [entry.value if entry else None for entry in found], column.metric.higher_is_better
        )
        return [
            Entry(self._printed(entry), place) if entry else Entry(DASH)
            for entry, place in zip(found, places, strict=True)
        ]

    def _printed(self, entry: PublishedValue) -> str:
        """The paper's number with its marks: a method's code may select on one data set only."""
        selected = "†" if entry.selected_on_test else ""
        return f"{printed_text(entry, self.style)}{selected}{top_k_mark(entry, self.top_k)}"

    def _our_cell(self, column: JoinedColumn, name: str) -> Entry:
        cell = column.ours.cell(name) if column.ours else None
        if cell is None or column.ours is None:
            return Entry(DASH)
        mark = rule_mark(column.ours.board.decision, column.metric)
        return Entry(f"{self.style.cell(cell, column.metric)}{mark}", cell.place)

    def _differences(self) -> Panel | None:
        """Ours less the paper's, for the papers' rows that we have too."""
        columns = self.table.columns
        rows = [
            [
                *texts(row[1], self._source(row)),
                *texts(*(delta_text(c.difference(row), c.metric, self.style) for c in columns)),
            ]
            for row in self.table.papers
            if any(column.difference(row) is not None for column in columns)
        ]
        return self._panel(["method", "Δ to"], rows, "Δ, ours less the paper's") if rows else None

    def _notes(self, left_out: int, differences: bool) -> list[str]:
        entries = self.entries
        notes = paper_notes(entries)
        if any(entry.selected_on_test for entry in entries):
            notes.append(SELECTED_NOTE)
        if self.table.ours is None:
            return [*notes, NO_RUN_NOTE]
        notes += [f"Ours: {note}" for note in table_notes(self.table.ours, left_out)]
        if entries:
            notes.append("The best of the papers and the best of ours are marked separately.")
        if any(data_notes(board) for board in self.boards):
            notes.append("Other data have no Δ: the numbers do not compare.")
        return [*notes, DELTA_NOTE] if differences else notes

    def records(self) -> list[Mapping[str, Any]]:
        """A record for each row of the table, with mean and std of each column."""
        records: list[Mapping[str, Any]] = []
        for row in self.table.papers:
            record = self._record(row[1], self._source(row))
            for column in self.table.columns:
                entry = column.published(row)
                mean, std = (entry.value, entry.std) if entry else (None, None)
                record |= self._fields(column, mean, std, column.difference(row))
            records.append(record)
        for name in self.table.ours.rows if self.table.ours else ():
            record = self._record(self.names.of(name), OURS)
            for column in self.table.columns:
                cell = column.ours.cell(name) if column.ours else None
                mean, std = (cell.mean, cell.std) if cell else (None, None)
                record |= self._fields(column, mean, std, None)
            record["rank"] = self.table.ours.ranks.get(name) if self.table.ours else None
            records.append(record)
        return records

    def _record(self, method: str, source: str) -> dict[str, Any]:
        first = self.table.columns[0]
        where = (
            {"metric": first.metric.key, "regime": self.table.regime}
            if self.table.layout == SETS
            else {"dataset": first.dataset, "regime": self.table.regime, "level": first.level}
        )
        return {**where, "method": method, "source": source}

    def _fields(
        self,
        column: JoinedColumn,
        mean: float | None,
        std: float | None,
        difference: float | None,
    ) -> dict[str, float | None]:
        key = column.metric.key
        if self.table.layout == SETS:
            at = f" {self._symbol}={column.level}" if column.level else ""
            key = f"{column.dataset}{at}"
        named = {key: mean, f"{key} std": std, f"{key} difference": difference}
        return {name: self._scaled(column, value) for name, value in named.items()}

    def _scaled(self, column: JoinedColumn, value: float | None) -> float | None:
        return None if value is None else self.style.value(value, column.metric)


def published_layout_document(
    tables: Sequence[SideBySide],
    boards: Sequence[Board],
    audited: Sequence[AuditedRow],
    layout: str,
    style: NumberStyle,
    names: RowNames | None,
) -> Document:
    """The papers' numbers and our main boards in a layout; `audited` says which values fit top-k."""
    top_k = fitting_top_k(audited)
    writers = [
        _Writer(table, top_k, style, names or RowNames())
        for table in joined_tables(tables, boards, layout)
    ]
    left_out = sum(bool(board.separate_reason) for board in boards)
    return Document(
        [writer.section(left_out) for writer in writers],
        [record for writer in writers for record in writer.records()],
        "published",
    )
