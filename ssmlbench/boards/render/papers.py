"""The papers' numbers beside ours, and their audit, as pages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from ssmlbench.boards.published import Line, Paper, Printed, SideBySide
from ssmlbench.boards.render.boards import RULES, cell_text, setting_text
from ssmlbench.boards.render.document import DASH, Document, Entry, Panel, TableSection, texts
from ssmlbench.boards.rule_audit import IDENTITY, AuditedRow, Misprint, Ratio
from ssmlbench.core.spec import REGIME_NUMBERS
from ssmlbench.protocol.metrics import METRICS


def side_by_side_document(
    tables: Sequence[SideBySide], audited: Sequence[AuditedRow], decision: str
) -> Document:
    top_k = {(row.dataset, row.printed_method) for row in audited if row.top_k}
    sections = []
    for table in tables:
        panels = [_panel(table, metric, top_k, decision) for metric in table.metrics]
        title = f"{table.dataset} · {table.regime} · papers and ours"
        sections.append(TableSection(title, panels, _notes(table, top_k, decision)))
    records = [record for table in tables for record in _records(table, top_k, decision)]
    return Document(sections, records, "published")


def _panel(table: SideBySide, metric: str, top_k: set[tuple[str, str]], decision: str) -> Panel:
    about = METRICS[metric]
    arrow = "↑" if about.higher_is_better else "↓"
    ours_mark = "‡" if decision == "top-k" and about.uses_decision else ""
    levels = [level for level in table.levels if _there(table, metric, level)]
    headers = [f"{about.title} {arrow}", "paper's name", "source"]
    columns: list[list[Entry]] = []
    for level in levels:
        at = f" {REGIME_NUMBERS[table.regime].symbol}={level}" if level else ""
        measured = any(
            line.measured and (metric, level) in line.measured.cells for line in table.lines
        )
        headers += [f"paper{at}"]
        columns.append(_paper_column(table, metric, level, top_k))
        if measured:
            headers += [f"ours{ours_mark}{at}", "Δ"]
            columns += _our_columns(table, metric, level)
    rows = []
    for i, line in enumerate(table.lines):
        if not any((metric, level) in line.printed for level in levels) and not line.measured:
            continue
        rows.append([*texts(*_names(table, line, metric)), *(column[i] for column in columns)])
    return Panel(headers, rows, left=3)


def _there(table: SideBySide, metric: str, level: str) -> bool:
    return any(
        (metric, level) in line.printed
        or (line.measured is not None and (metric, level) in line.measured.cells)
        for line in table.lines
    )


def _names(table: SideBySide, line: Line, metric: str) -> tuple[str, str, str]:
    first = line.first
    ours = f"{line.method} †" if line.measured and _oracle(table) else line.method
    if first is None:
        return ours, DASH, DASH
    mark = " †" if first.selected_on_test else ""
    shown = [e for e in line.printed.values() if e.metric == metric] or [first]
    return ours, f"{first.printed_method}{mark}", _source_text(shown)


def _source_text(entries: Sequence[Printed]) -> str:
    """`BBAM-NeurIPS24-slides-T2, T4`: a paper's tables, its name once."""
    sources = dict.fromkeys(source for entry in entries for source in entry.sources)
    tables: dict[str, list[str]] = defaultdict(list)
    for source in sources:
        name, dash, table = source.rpartition("-")
        tables[name + dash].append(table)
    return ", ".join(name + ", ".join(members) for name, members in tables.items())


def _oracle(table: SideBySide) -> bool:
    return table.board is not None and table.board.selection == "oracle"


def _paper_column(
    table: SideBySide, metric: str, level: str, top_k: set[tuple[str, str]]
) -> list[Entry]:
    printed = [line.printed.get((metric, level)) for line in table.lines]
    places = _places([e.value if e else None for e in printed], METRICS[metric].higher_is_better)
    return [
        Entry(_printed_text(entry, top_k), place) if entry else Entry(DASH)
        for entry, place in zip(printed, places, strict=True)
    ]


def _printed_text(entry: Printed, top_k: set[tuple[str, str]]) -> str:
    text = f"{entry.value:.{entry.decimals}f}"
    if entry.std is not None:
        text += f" ± {entry.std:.{entry.decimals}f}"
    by_rule = METRICS[entry.metric].uses_decision
    return f"{text}‡" if by_rule and (entry.dataset, entry.printed_method) in top_k else text


def _our_columns(table: SideBySide, metric: str, level: str) -> list[list[Entry]]:
    ours, differences = [], []
    for line in table.lines:
        cell = line.measured.cells.get((metric, level)) if line.measured else None
        ours.append(Entry(cell_text(cell, METRICS[metric]), cell.place if cell else 0))
        difference = line.difference(metric, level)
        differences.append(Entry(DASH if difference is None else f"{difference:+.4f}"))
    return [ours, differences]


def _places(values: Sequence[float | None], higher_is_better: bool) -> list[int]:
    present = [value for value in values if value is not None]
    return [
        0
        if value is None
        else 1 + sum(other > value if higher_is_better else other < value for other in present)
        for value in values
    ]


def _notes(table: SideBySide, top_k: set[tuple[str, str]], decision: str) -> list[str]:
    entries = [entry for line in table.lines for entry in line.printed.values()]
    notes = [f"{paper.title}: {_made(paper)}{paper.rule}." for paper in _papers(entries)]
    if any(entry.selected_on_test for entry in entries) or _oracle(table):
        notes.append("† the epoch was selected on the test set; a paper's: by its released code.")
    if table.board is None:
        return [*notes, "Ours: no finished run here yet."]
    rule = f"{RULES[decision]}; " if any(METRICS[m].uses_decision for m in table.metrics) else ""
    notes.append(f"Ours: {rule}{setting_text(table.board.setting)}; mean ± std over seeds.")
    notes.append(
        "Δ is ours less the paper's. Protocols, encoders and schedules differ: it is no test of either."
    )
    return notes


def _papers(entries: Sequence[Printed]) -> list[Paper]:
    return list(dict.fromkeys(entry.about for entry in entries))


def _made(paper: Paper) -> str:
    return f"{paper.made}; " if paper.made else ""


def _records(
    table: SideBySide, top_k: set[tuple[str, str]], decision: str
) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for line in table.lines:
        for metric in table.metrics:
            for level in table.levels:
                entry = line.printed.get((metric, level))
                cell = line.measured.cells.get((metric, level)) if line.measured else None
                if not entry and not cell:
                    continue
                by_rule = METRICS[metric].uses_decision
                fits = entry is not None and (entry.dataset, entry.printed_method) in top_k
                found.append(
                    {
                        "dataset": table.dataset,
                        "regime": table.regime,
                        "level": level,
                        "method": line.method,
                        "metric": metric,
                        "paper": entry.paper if entry else "",
                        "source": _source_text([entry]) if entry else "",
                        "paper_method": entry.printed_method if entry else "",
                        "published": entry.value if entry else None,
                        "published_std": entry.std if entry else None,
                        "published_fits_top_k": fits if entry and by_rule else None,
                        "published_selected_on_test": entry.selected_on_test if entry else None,
                        "measured": cell.mean if cell else None,
                        "measured_std": cell.std if cell else None,
                        "seeds": len(cell.seeds) if cell else None,
                        "difference": line.difference(metric, level),
                        "decision": decision if cell and by_rule else "",
                        "selection": table.board.selection if cell and table.board else "",
                    }
                )
    return found


# ------------------------------------------------------------------------------------ the audit


def audit_document(rows: Sequence[AuditedRow], found: Sequence[Misprint]) -> Document:
    sections = []
    for dataset in dict.fromkeys(row.dataset for row in rows):
        members = [row for row in rows if row.dataset == dataset]
        sections.append(_audit_section(dataset, members))
    if found:
        body = [texts(m.dataset, m.method, METRICS[m.metric].title, m.what) for m in found]
        headers = ["data set", "method", "metric", "what does not fit"]
        sections.append(TableSection("Probable misprints", [Panel(headers, body, left=4)]))
    records = [_audit_record(row, ratio) for row in rows for ratio in row.ratios]
    records += [{"kind": "misprint", **vars(misprint)} for misprint in found]
    return Document(sections, records, "audit")


def _audit_section(dataset: str, rows: Sequence[AuditedRow]) -> TableSection:
    levels = list(dict.fromkeys(ratio.level for row in rows for ratio in row.ratios))
    headers = ["method", *(f"π={level}" for level in levels), "predicted / true", "can come from"]
    body = []
    for row in rows:
        by_level = {ratio.level: ratio for ratio in row.ratios}
        values = [f"{by_level[lv].value:.4f}" if lv in by_level else DASH for lv in levels]
        body.append(texts(row.method, *values, _shares(row), row.verdict))
    density = rows[0].density
    known = (
        f"True density {density.middle:.4f} "
        + (
            "(inferred: the one constant of the rows that fit)."
            if rows[0].inferred
            else "(HML Table 1: mean labels a row / labels, both splits)."
        )
        if density
        else "The true density is not known here."
    )
    notes = [
        f"{IDENTITY}. Under top-k the predicted density is the true one: the same ratio at every π.",
        known,
        "Constant: one number lies within the rounding of the printed digits at every π. Metrics taken "
        "from different epochs or models would not be constant either.",
    ]
    return TableSection(
        f"{dataset} · audit of published F1 and Hamming", [Panel(headers, body)], notes
    )


def _shares(row: AuditedRow) -> str:
    shares = [share for ratio in row.ratios if (share := row.predicted_share(ratio)) is not None]
    if not shares:
        return DASH
    low, high = f"{min(shares):.2f}", f"{max(shares):.2f}"
    return low if low == high else f"{low} to {high}"


def _audit_record(row: AuditedRow, ratio: Ratio) -> Mapping[str, Any]:
    return {
        "kind": "ratio",
        "dataset": row.dataset,
        "method": row.method,
        "paper_method": row.printed_method,
        "level": ratio.level,
        "ratio": ratio.value,
        "low": ratio.interval.low,
        "high": ratio.interval.high,
        "true_density": row.density.middle if row.density else None,
        "density_inferred": row.inferred,
        "predicted_per_true": row.predicted_share(ratio),
        "constant": row.constant,
        "fits_top_k": row.top_k,
        "verdict": row.verdict,
    }
