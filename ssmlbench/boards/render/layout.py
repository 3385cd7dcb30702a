"""Boards in the layouts of papers as a document: headers, marks, notes. No number is computed here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ssmlbench.boards.board import Board
from ssmlbench.boards.columns import COSTS, Column
from ssmlbench.boards.layout import METRICS, SETS, LayoutTable, TableColumn, layout_tables
from ssmlbench.boards.render.boards import rank_text, row_name
from ssmlbench.boards.render.document import DASH, Document, Entry, Panel, TableSection, texts
from ssmlbench.boards.render.names import RowNames
from ssmlbench.boards.render.notes import OTHER_DATA, footnotes, marked_dataset, rule_mark
from ssmlbench.boards.render.numbers import PLAIN, NumberStyle
from ssmlbench.core.counts import counted
from ssmlbench.core.errors import UserError

SURE = "*"
"""Marks a difference whose interval excludes zero."""


def layout_document(
    boards: Sequence[Board],
    layout: str,
    style: NumberStyle = PLAIN,
    names: RowNames | None = None,
) -> Document:
    """The main boards in a layout of papers: a section for each table."""
    tables = layout_tables(boards, layout)
    if not tables:
        raise UserError(f"--layout {layout}: no board to put into a table")
    names = names or RowNames()
    left_out = sum(bool(board.separate_reason) for board in boards)
    sections = [layout_section(table, style, names, left_out) for table in tables]
    records = [record for table in tables for record in _records(table, style, names)]
    return Document(sections, records)


def layout_section(
    table: LayoutTable,
    style: NumberStyle,
    names: RowNames | None = None,
    left_out: int = 0,
) -> TableSection:
    """One table with its differences and its notes."""
    names = names or RowNames()
    panels = [_value_panel(table, style, names)]
    if any(column.difference(row) for column in table.columns for row in table.rows):
        panels.append(_difference_panel(table, style, names))
    about = (
        table.metrics[0].key
        if table.layout == SETS
        else f"{table.boards[0].dataset} {table.columns[0].level} metrics"
    )
    return TableSection(
        _title(table, style),
        panels,
        [*table_notes(table, left_out), *_difference_notes(table, names)],
        key=f"{about} {table.regime}",
    )


def _title(table: LayoutTable, style: NumberStyle) -> str:
    """`mAP (%) on scene, yeast (semi)`; `mAP, Micro-F1 on scene (semi π = 0.05)`."""
    unit = " (%)" if style.percent else ""
    decision = table.boards[0].decision
    metrics = ", ".join(
        f"{metric.title}{rule_mark(decision, metric)}{'' if metric.key in COSTS else unit}"
        for metric in table.metrics
    )
    sets = ", ".join(dict.fromkeys(_dataset(board) for board in table.boards))
    return f"{metrics} on {sets} ({table.regime}{_only_level(table)})"


def _only_level(table: LayoutTable) -> str:
    """` π = 0.05`, where all columns are at one level and do not name it."""
    board, level = table.columns[0].board, table.columns[0].level
    return f" {board.axis} = {level}" if table.layout == METRICS and level else ""


def _dataset(board: Board) -> str:
    return marked_dataset(board.dataset, bool(board.unlike_published))


def _value_panel(table: LayoutTable, style: NumberStyle, names: RowNames) -> Panel:
    rows = []
    for name in table.rows:
        cells = []
        for column in table.columns:
            cell = column.cell(name)
            text = style.cell(cell, column.metric)
            cells.append(Entry(text, cell.place if cell else 0))
        more = [rank_of(table, name)] if has_rank(table) else []
        rows.append(texts(table_row_name(table, name, names), *cells, *more))
    ranks = ["rank"] if has_rank(table) else []
    headers = ["method", *(_header(table, column) for column in table.columns), *ranks]
    groups = ["", *(_group(table, column) for column in table.columns), *(["" for _ in ranks])]
    return Panel(headers, rows, groups=_if_any(groups), title=_panel_title(table))


def _panel_title(table: LayoutTable) -> str:
    return ", ".join(metric.title for metric in table.metrics)


def has_rank(table: LayoutTable) -> bool:
    """Whether the table has several columns, so that an average rank is of use."""
    return len(table.columns) > 1


def rank_of(table: LayoutTable, name: str) -> str:
    """The average rank of a row over the columns; a dash if it lacks some of them."""
    return rank_text(table.ranks[name]) if name in table.ranks else DASH


def _if_any(groups: Sequence[str]) -> Sequence[str]:
    return groups if any(groups) else ()


def _group(table: LayoutTable, column: TableColumn) -> str:
    """The heading above a column: its data set, where there may be several."""
    return _dataset(column.board) if table.layout == SETS else ""


def _header(table: LayoutTable, column: TableColumn) -> str:
    if table.layout == METRICS:
        return _metric(column.board, column.metric)
    return _level(column) or _metric(column.board, column.metric)


def _level(column: TableColumn) -> str:
    return f"{column.board.axis}={column.level}" if column.level else ""


def _metric(board: Board, metric: Column) -> str:
    arrow = "↑" if metric.higher_is_better else "↓"
    return f"{metric.title}{rule_mark(board.decision, metric)} {arrow}"


def table_row_name(table: LayoutTable, name: str, names: RowNames) -> str:
    """The row's name with the marks that it has on any of the boards."""
    for board in table.boards:
        row = next((row for row in board.rows if row.name == name), None)
        if row is not None:
            return row_name(board, row, names)
    return names.of(name)


def _difference_panel(table: LayoutTable, style: NumberStyle, names: RowNames) -> Panel:
    columns = [column for column in table.columns if column.is_compared]
    rows = [
        texts(
            table_row_name(table, name, names),
            *(_difference_text(column, name, style) for column in columns),
        )
        for name in table.rows
    ]
    headers = ["method", *(_header(table, column) for column in columns)]
    groups = ["", *(_group(table, column) for column in columns)]
    title = f"{columns[0].metric.title}, difference"
    return Panel(headers, rows, groups=_if_any(groups), title=title)


def _difference_text(column: TableColumn, name: str, style: NumberStyle) -> str:
    """`+0.012*`: the mean difference, marked where its interval excludes zero."""
    difference = column.difference(name)
    if difference is None:
        return "baseline" if column.board.baselines[column.level] == name else DASH
    text = style.signed(difference.mean, column.metric)
    low, high = difference.interval or (0.0, 0.0)
    return f"{text}{SURE}" if low > 0 or high < 0 else text


# ------------------------------------------------------------------------------------------ notes


def table_notes(table: LayoutTable, left_out: int) -> list[str]:
    """The notes of the boards, each once with its data sets. left_out: the number of boards left out."""
    by_note: dict[str, list[str]] = defaultdict(list)
    for board in table.boards:
        for note in footnotes(replace(board, metrics=table.metrics)):
            if not note.startswith("Last table:"):
                by_note[note].append(board.dataset)
    everywhere = len(table.boards)
    notes = [
        # The note on other data names its data set.
        note if len(sets) == everywhere or note[0] == OTHER_DATA else f"{', '.join(sets)}: {note}"
        for note, sets in by_note.items()
    ]
    notes.append(_seeds_note(table))
    if left_out:
        notes.append(
            f"Left out: {counted(left_out, 'board')} with other settings; compare without "
            "--layout shows them."
        )
    return notes


def _seeds_note(table: LayoutTable) -> str:
    cells = [column.cell(name) for column in table.columns for name in table.rows]
    counts = sorted({len(cell.seeds) for cell in cells if cell})
    seeds = "–".join(map(str, counts[:1] + counts[-1:] if len(counts) > 1 else counts))
    missing = f"; {DASH} has no run" if None in cells else ""
    return f"Each number is over {seeds} seed{'s' * (counts != [1])}{missing}."


def _difference_notes(table: LayoutTable, names: RowNames) -> list[str]:
    differences = [c.difference(row) for c in table.columns for row in table.rows]
    present = [difference for difference in differences if difference is not None]
    if not present:
        return []
    baselines = dict.fromkeys(
        names.of(name) for column in table.columns for name in column.board.baselines.values()
    )
    text = (
        f"Second table: less the baseline of each column ({', '.join(baselines)}), paired by seed"
    )
    if any(difference.interval for difference in present):
        text += f"; {SURE} its 95 % t interval excludes 0"
    if any(difference.interval is None for difference in present):
        text += "; fewer than 3 common seeds have no interval"
    return [f"{text}."]


# ---------------------------------------------------------------------------------------- records


def _records(table: LayoutTable, style: NumberStyle, names: RowNames) -> list[Mapping[str, Any]]:
    """A record for each row of the table, with two fields (mean, std) for each column."""
    records: list[Mapping[str, Any]] = []
    for name in table.rows:
        about = table.metrics[0].key if table.layout == SETS else table.boards[0].dataset
        level = {} if table.layout == SETS else {"level": table.columns[0].level}
        record: dict[str, Any] = {
            "metric" if table.layout == SETS else "dataset": about,
            "regime": table.regime,
            **level,
            "method": names.of(name),
        }
        for column in table.columns:
            cell = column.cell(name)
            parts = (_group(table, column), _plain_header(table, column))
            key = " ".join(part for part in parts if part)
            record[key] = style.value(cell.mean, column.metric) if cell else None
            std = cell.std if cell else None
            record[f"{key} std"] = None if std is None else style.value(std, column.metric)
        record["rank"] = table.ranks.get(name)
        records.append(record)
    return records


def _plain_header(table: LayoutTable, column: TableColumn) -> str:
    return column.metric.key if table.layout == METRICS else _level(column)
