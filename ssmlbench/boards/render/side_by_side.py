"""The papers' numbers beside ours as a document."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ssmlbench.boards.columns import Column
from ssmlbench.boards.papers import Paper
from ssmlbench.boards.published import PublishedValue
from ssmlbench.boards.render.boards import other_data
from ssmlbench.boards.render.document import DASH, Document, Entry, Panel, TableSection, texts
from ssmlbench.boards.render.names import RowNames
from ssmlbench.boards.render.notes import data_notes, rule_mark, rule_text, setting_text
from ssmlbench.boards.render.numbers import PLAIN, NumberStyle
from ssmlbench.boards.rule_audit import AuditedRow, RowKey, row_key
from ssmlbench.boards.side_by_side import JoinedRow, SideBySide
from ssmlbench.core.spec import REGIME_NUMBERS
from ssmlbench.protocol.metrics import METRICS

SELECTED_NOTE = "† the epoch was selected on the test set; a paper's: by its released code."
NO_RUN_NOTE = "Ours: no finished run here yet."
DELTA_NOTE = (
    "Δ is ours less the paper's. Protocols, encoders and schedules differ: it is no test of either."
)


def side_by_side_document(
    tables: Sequence[SideBySide],
    audited: Sequence[AuditedRow],
    decision: str,
    style: NumberStyle = PLAIN,
    names: RowNames | None = None,
) -> Document:
    """Return one section a data set and regime; `audited` says which values fit top-k."""
    top_k = fitting_top_k(audited)
    panel_style = _PanelStyle(top_k, decision, style, names or RowNames())
    sections = []
    for table in tables:
        panels = [_panel(table, metric, panel_style) for metric in table.metrics]
        other = other_data(table.board) if table.board else ""
        title = f"{table.dataset} · {table.regime} · papers and ours{other}"
        sections.append(TableSection(title, panels, _notes(table, decision)))
    records = [record for table in tables for record in _records(table, top_k, decision)]
    return Document(sections, records, "published")


@dataclass(frozen=True)
class _PanelStyle:
    """The style of every table's numbers and names."""

    top_k: set[RowKey]
    decision: str
    style: NumberStyle
    names: RowNames


def fitting_top_k(audited: Sequence[AuditedRow]) -> set[RowKey]:
    """The papers' rows whose F1 and Hamming loss fit the true number of labels."""
    return {row_key(row.first) for row in audited if row.top_k}


def _panel(table: SideBySide, metric: str, panel_style: _PanelStyle) -> Panel:
    about = METRICS[metric]
    arrow = "↑" if about.higher_is_better else "↓"
    ours_mark = rule_mark(panel_style.decision, about)
    unit = " (%)" if panel_style.style.percent else ""
    levels = [level for level in table.levels if _has_value(table, metric, level)]
    headers = [f"{about.title}{unit} {arrow}", "paper's name", "source"]
    columns: list[list[Entry]] = []
    for level in levels:
        at = f" {REGIME_NUMBERS[table.regime].symbol}={level}" if level else ""
        measured = any(row.measured and (metric, level) in row.measured.cells for row in table.rows)
        headers += [f"paper{at}"]
        columns.append(_paper_column(table, metric, level, panel_style))
        if measured:
            ours, differences = _our_columns(table, metric, level, panel_style.style)
            headers.append(f"ours{ours_mark}{at}")
            columns.append(ours)
            if _same_data(table):
                headers.append("Δ")
                columns.append(differences)
    rows = []
    for i, row in enumerate(table.rows):
        if not any((metric, level) in row.published for level in levels) and not row.measured:
            continue
        rows.append(
            [
                *texts(*_names(table, row, metric, panel_style.names)),
                *(column[i] for column in columns),
            ]
        )
    return Panel(headers, rows, left=3)


def _has_value(table: SideBySide, metric: str, level: str) -> bool:
    return any(
        (metric, level) in row.published
        or (row.measured is not None and (metric, level) in row.measured.cells)
        for row in table.rows
    )


def _names(table: SideBySide, row: JoinedRow, metric: str, names: RowNames) -> tuple[str, str, str]:
    first = row.first
    ours = names.of(row.method) if row.measured else row.method
    ours += " †" if row.measured and _oracle(table) else ""
    if first is None:
        return ours, DASH, DASH
    mark = " †" if first.selected_on_test else ""
    shown = [e for e in row.published.values() if e.metric == metric] or [first]
    return ours, f"{first.paper_method}{mark}", _source_text(shown)


def _source_text(entries: Sequence[PublishedValue]) -> str:
    """`BBAM-NeurIPS24-slides-T2, T4`: a paper's tables, its name once."""
    sources = dict.fromkeys(source for entry in entries for source in entry.sources)
    tables: dict[str, list[str]] = defaultdict(list)
    for source in sources:
        name, dash, table = source.rpartition("-")
        tables[name + dash].append(table)
    return ", ".join(name + ", ".join(members) for name, members in tables.items())


def _oracle(table: SideBySide) -> bool:
    return table.board is not None and table.board.selection == "oracle"


def _same_data(table: SideBySide) -> bool:
    return table.board is None or not table.board.unlike_published


def _paper_column(
    table: SideBySide, metric: str, level: str, panel_style: _PanelStyle
) -> list[Entry]:
    published = [row.published.get((metric, level)) for row in table.rows]
    places = value_places(
        [e.value if e else None for e in published], METRICS[metric].higher_is_better
    )
    return [
        Entry(f"{printed_text(e, panel_style.style)}{top_k_mark(e, panel_style.top_k)}", place)
        if e
        else Entry(DASH)
        for e, place in zip(published, places, strict=True)
    ]


def printed_text(entry: PublishedValue, style: NumberStyle) -> str:
    """A paper's number in the table's unit, with at most as many decimals as in the paper."""
    scale, shift = (100, 2) if style.percent else (1, 0)
    decimals = max(entry.decimals - shift, 0)
    if style.digits is not None:
        decimals = min(decimals, style.digits)
    text = f"{entry.value * scale:.{decimals}f}"
    if entry.std is not None and style.spread:
        text += f" ± {entry.std * scale:.{decimals}f}"
    return text


def top_k_mark(entry: PublishedValue, top_k: set[RowKey]) -> str:
    """‡ where the value is by a decision rule and fits the true number of labels."""
    return "‡" if METRICS[entry.metric].uses_decision and row_key(entry) in top_k else ""


def _our_columns(
    table: SideBySide, metric: str, level: str, style: NumberStyle
) -> list[list[Entry]]:
    ours, differences = [], []
    for row in table.rows:
        cell = row.measured.cells.get((metric, level)) if row.measured else None
        ours.append(Entry(style.cell(cell, METRICS[metric]), cell.place if cell else 0))
        difference = row.difference(metric, level)
        differences.append(Entry(delta_text(difference, METRICS[metric], style)))
    return [ours, differences]


def delta_text(difference: float | None, metric: Column, style: NumberStyle) -> str:
    """Ours less the paper's, with the decimals of our numbers."""
    if difference is None:
        return DASH
    return f"{style.scaled(difference, metric):+.{style.decimals(metric)}f}"


def value_places(values: Sequence[float | None], higher_is_better: bool) -> list[int]:
    """The place of each value in its column; 0 for none."""
    present = [value for value in values if value is not None]
    return [
        0
        if value is None
        else 1 + sum(other > value if higher_is_better else other < value for other in present)
        for value in values
    ]


def _notes(table: SideBySide, decision: str) -> list[str]:
    entries = [entry for row in table.rows for entry in row.published.values()]
    notes = paper_notes(entries)
    if any(entry.selected_on_test for entry in entries) or _oracle(table):
        notes.append(SELECTED_NOTE)
    if table.board is None:
        return [*notes, NO_RUN_NOTE]
    rule = (
        f"{rule_text(decision)}; " if any(METRICS[m].uses_decision for m in table.metrics) else ""
    )
    notes.append(f"Ours: {rule}{setting_text(table.board)}; mean ± std over seeds.")
    if not _same_data(table):
        return [*notes, *data_notes(table.board), "So there is no Δ: the numbers do not compare."]
    return [*notes, DELTA_NOTE]


def paper_notes(entries: Sequence[PublishedValue]) -> list[str]:
    """A note for each paper: its citation, and how its numbers were made."""
    return [
        f"{paper.citation}: {_setup(paper)}{paper.decision_rule}."
        for paper in dict.fromkeys(entry.paper for entry in entries)
    ]


def _setup(paper: Paper) -> str:
    return f"{paper.setup}; " if paper.setup else ""


def _records(table: SideBySide, top_k: set[RowKey], decision: str) -> list[Mapping[str, Any]]:
    records: list[Mapping[str, Any]] = []
    for row in table.rows:
        for metric in table.metrics:
            for level in table.levels:
                entry = row.published.get((metric, level))
                cell = row.measured.cells.get((metric, level)) if row.measured else None
                if not entry and not cell:
                    continue
                by_rule = METRICS[metric].uses_decision
                fits = entry is not None and row_key(entry) in top_k
                records.append(
                    {
                        "dataset": table.dataset,
                        "regime": table.regime,
                        "level": level,
                        "method": row.method,
                        "metric": metric,
                        "paper": entry.paper.key if entry else "",
                        "source": _source_text([entry]) if entry else "",
                        "paper_method": entry.paper_method if entry else "",
                        "published": entry.value if entry else None,
                        "published_std": entry.std if entry else None,
                        "published_fits_top_k": fits if entry and by_rule else None,
                        "published_selected_on_test": entry.selected_on_test if entry else None,
                        "measured": cell.mean if cell else None,
                        "measured_std": cell.std if cell else None,
                        "seeds": len(cell.seeds) if cell else None,
                        "difference": row.difference(metric, level),
                        "decision": decision if cell and by_rule else "",
                        "selection": table.board.selection if cell and table.board else "",
                    }
                )
    return records
