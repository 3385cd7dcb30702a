"""The audit of published numbers as a document: decision rules, misprints, sources that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ssmlbench.boards.render.document import DASH, Document, Panel, TableSection, texts
from ssmlbench.boards.rule_audit import IDENTITY, AuditedRow, Misprint, Ratio
from ssmlbench.boards.source_audit import Disagreement
from ssmlbench.protocol.metrics import METRICS


def audit_document(
    rows: Sequence[AuditedRow],
    misprints: Sequence[Misprint],
    disagreements: Sequence[Disagreement],
) -> Document:
    """Return one section a data set, one of probable misprints and one of sources that differ."""
    sections = []
    for dataset in dict.fromkeys(row.dataset for row in rows):
        members = [row for row in rows if row.dataset == dataset]
        sections.append(_audit_section(dataset, members))
    if misprints:
        body = [
            texts(m.value.dataset, m.value.method, METRICS[m.value.metric].title, m.reason)
            for m in misprints
        ]
        headers = ["data set", "method", "metric", "what does not fit"]
        sections.append(TableSection("Probable misprints", [Panel(headers, body, left=4)]))
    if disagreements:
        sections.append(_sources_section(disagreements))
    records = [_audit_record(row, ratio) for row in rows for ratio in row.ratios]
    records += [_misprint_record(misprint) for misprint in misprints]
    records += [record for row in disagreements for record in _disagreement_records(row)]
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
        f"True density {density.interval.middle:.4f} ({density.source})."
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


def _sources_section(disagreements: Sequence[Disagreement]) -> TableSection:
    body = []
    for row in disagreements:
        first = row.first
        at = f"{first.regime} {first.level}".strip()
        printed = "; ".join(f"{value.digits} ({value.paper.name})" for value in row.values)
        apart = f"{row.spread:.4f}" + (" (within ± of both)" if row.within_deviations else "")
        title = METRICS[first.metric].title
        body.append(texts(first.dataset, at, first.method, title, printed, apart))
    headers = ["data set", "regime", "method", "metric", "printed", "apart"]
    notes = [
        "One row of a table, printed by two sources with numbers that differ by more than their rounding. "
        "A source may have run the method again under its own protocol, copied the number of a third, or "
        "misprinted it.",
    ]
    return TableSection("Sources that differ", [Panel(headers, body, left=5)], notes)


def _disagreement_records(row: Disagreement) -> list[Mapping[str, Any]]:
    return [
        {
            "kind": "disagreement",
            "dataset": value.dataset,
            "regime": value.regime,
            "level": value.level,
            "method": value.method,
            "metric": value.metric,
            "paper": value.paper.key,
            "sources": ", ".join(value.sources),
            "value": value.value,
            "std": value.std,
            "apart": row.spread,
        }
        for value in row.values
    ]


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
        "paper_method": row.first.paper_method,
        "level": ratio.level,
        "ratio": ratio.value,
        "low": ratio.interval.low,
        "high": ratio.interval.high,
        "true_density": row.density.interval.middle if row.density else None,
        "density_inferred": row.inferred,
        "predicted_per_true": row.predicted_share(ratio),
        "constant": row.constant,
        "fits_top_k": row.top_k,
        "verdict": row.verdict,
    }


def _misprint_record(misprint: Misprint) -> Mapping[str, Any]:
    return {
        "kind": "misprint",
        "dataset": misprint.value.dataset,
        "method": misprint.value.method,
        "metric": misprint.value.metric,
        "what": misprint.reason,
    }
