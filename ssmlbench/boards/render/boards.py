"""Boards as a document: titles, column names, tables. No number is computed here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ssmlbench.boards.board import Board, BoardRow, Cell
from ssmlbench.boards.columns import Column
from ssmlbench.boards.render.document import DASH, Document, Entry, Panel, TableSection, texts
from ssmlbench.boards.render.names import RowNames
from ssmlbench.boards.render.notes import OTHER_DATA, footnotes, rule_mark
from ssmlbench.boards.render.numbers import PLAIN, NumberStyle
from ssmlbench.protocol.regimes import REGIMES


def title(board: Board) -> str:
    """The data set, the regime, its number if there is only one, and a note on unpublished data."""
    where = f" {board.axis} = {board.levels[0]}" if board.axis and len(board.levels) == 1 else ""
    return f"{board.dataset} · {board.regime}{where}{other_data(board)}"


def other_data(board: Board) -> str:
    """The part of a title that says that the data are not those of papers; empty if they are."""
    return f" · not the published data {OTHER_DATA}" if board.unlike_published else ""


def row_name(board: Board, row: BoardRow, names: RowNames) -> str:
    """The row's name, with its marks: ° labelled rows only, † epoch selected on the test set."""
    name = names.of(row.name)
    if REGIMES[board.regime].has_unlabelled_rows and row.uses == "labelled rows":
        name += " °"
    if board.selection == "oracle" and not row.is_estimator:
        name += " †"
    return name


def column_title(board: Board, metric: Column, level: str) -> str:
    """The metric with its direction, its decision rule's mark and the regime's number."""
    arrow = "↑" if metric.higher_is_better else "↓"
    mark = rule_mark(board.decision, metric)
    name = f"{metric.title}{mark} {arrow}"
    return f"{name} {board.axis}={level}" if len(board.levels) > 1 else name


def seeds_text(row: BoardRow) -> str:
    """The number of seeds of the row's cells: `3`, or `2–3` if they differ."""
    counts = sorted({len(cell.seeds) for cell in row.cells.values()})
    return "–".join(map(str, counts[:1] + counts[-1:] if len(counts) > 1 else counts))


def boards_document(
    boards: Sequence[Board], style: NumberStyle = PLAIN, names: RowNames | None = None
) -> Document:
    """The boards as a document, one table each."""
    sections = [_section(board, style, names or RowNames()) for board in boards]
    return Document(sections, list(records(boards)))


def _section(board: Board, style: NumberStyle, names: RowNames) -> TableSection:
    warning = (
        f"Shown separately, not comparable: {board.separate_reason}."
        if board.separate_reason
        else ""
    )
    panels = [_panel(board, columns, style, names) for columns in _column_groups(board)]
    panels += (
        [_difference_panel(board, style, names)]
        if any(row.differences for row in board.rows)
        else []
    )
    return TableSection(title(board), panels, footnotes(board), warning)


def _difference_panel(board: Board, style: NumberStyle, names: RowNames) -> Panel:
    """The difference of each row to the baseline, with a column per level."""
    assert board.compared is not None
    levels = [level for level in board.levels if level in board.baselines]
    several = len(board.levels) > 1
    headers = [
        f"{board.compared.title} vs {names.of(board.baselines[level])}"
        + (f" {board.axis}={level}" if several else "")
        for level in levels
    ]
    rows = [
        texts(
            row_name(board, row, names),
            *(difference_text(board, row, level, style) for level in levels),
        )
        for row in board.rows
    ]
    return Panel(["method", *headers], rows, title=f"{board.compared.title}, difference")


def difference_text(board: Board, row: BoardRow, level: str, style: NumberStyle) -> str:
    """`+0.012 [-0.003, +0.027]`, with ` {…}` behind it where test rows were resampled."""
    difference = row.differences.get(level)
    if difference is None or board.compared is None:
        return "baseline" if board.baselines.get(level) == row.name else DASH
    metric = board.compared
    text = style.signed(difference.mean, metric)
    if difference.interval is not None:
        text += f" [{', '.join(style.signed(end, metric) for end in difference.interval)}]"
    if difference.over_rows is not None:
        text += f" {{{', '.join(style.signed(end, metric) for end in difference.over_rows)}}}"
    return text


def _column_groups(board: Board) -> list[list[tuple[Column, str]]]:
    """All metrics in one table for one level; for several levels, a table per metric."""
    if len(board.levels) == 1:
        return [board.columns]
    return [[(metric, level) for level in board.levels] for metric in board.metrics]


def _panel(
    board: Board, columns: Sequence[tuple[Column, str]], style: NumberStyle, names: RowNames
) -> Panel:
    headers = ["method", "seeds", *(column_title(board, m, lv) for m, lv in columns), "rank"]
    rows = []
    for row in board.rows:
        cells = []
        for metric, level in columns:
            cell = row.cells.get((metric.key, level))
            cells.append(Entry(style.cell(cell, metric), cell.place if cell else 0))
        name = row_name(board, row, names)
        rows.append(texts(name, seeds_text(row), *cells, rank_text(row.rank)))
    metrics = dict.fromkeys(metric.title for metric, _ in columns)
    return Panel(headers, rows, title=", ".join(metrics))


def rank_text(rank: float) -> str:
    """An average rank with two decimals."""
    return DASH if math.isnan(rank) else f"{rank:.2f}"


def records(boards: Sequence[Board]) -> list[Mapping[str, object]]:
    """One flat record per cell, for CSV and JSON."""
    return [
        {
            "dataset": board.dataset,
            "regime": board.regime,
            "level": level,
            "method": row.name,
            "metric": metric.key,
            "mean": row.cells[metric.key, level].mean,
            "std": row.cells[metric.key, level].std,
            **_interval(row.cells[metric.key, level]),
            **_difference(board, row, metric, level),
            "uses": row.uses,
            "version": row.version,
            "seeds": len(row.cells[metric.key, level].seeds),
            "place": row.cells[metric.key, level].place,
            "rank": row.rank,
            "decision": board.decision if metric.uses_decision else "",
            "selection": board.selection,
            "convention": board.convention,
            "separate_reason": board.separate_reason,
            "unlike_published": "; ".join(board.unlike_published),
            **{k: v for k, v in board.setting.items() if k != "selection"},
        }
        for board in boards
        for row in board.rows
        for metric, level in board.columns
        if (metric.key, level) in row.cells
    ]


def _interval(cell: Cell) -> dict[str, float]:
    return dict(zip(("low", "high"), cell.interval, strict=True)) if cell.interval else {}


def _difference(board: Board, row: BoardRow, metric: Column, level: str) -> dict[str, object]:
    difference = row.differences.get(level)
    if difference is None or metric is not board.compared:
        return {}
    low, high = difference.interval or (None, None)
    return {
        "baseline": board.baselines[level],
        "difference": difference.mean,
        "difference_low": low,
        "difference_high": high,
    }
