"""Ablations and sensitivity among the finished runs of boards, for the report.

`ssmlbench analyse ablation` and `sensitivity` plan and make their runs; here are rows of one method
that are there already, whoever made them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ssmlbench.boards.analyses.contract import Findings, RunCell
from ssmlbench.boards.analyses.variants import (
    VariantRuns,
    ablation_findings,
    has_a_place,
    sensitivity_findings,
)
from ssmlbench.boards.query import Query
from ssmlbench.core.hyperparameters import as_typed

METRICS_SHOWN = ("map", "micro_f1")
LEAST_VALUES = 3
"""Values of a hyper-parameter from which on a curve is drawn."""


def ablations_found(cells: Sequence[RunCell], query: Query) -> list[Findings]:
    """For each method with a row as it is and others: every other row against it, seed by seed."""
    findings = []
    for cell in cells:
        for method, rows in variant_rows(cell).items():
            if len(rows) > 1 and not rows[0].changes:
                shown = replace(query, metrics=METRICS_SHOWN)
                findings.append(ablation_findings(method, cell.where, rows, shown))
    return findings


def sensitivities_found(cells: Sequence[RunCell], query: Query) -> list[Findings]:
    """For each hyper-parameter with three values or more: the metrics over it, others at their defaults."""
    findings = []
    for cell in cells:
        for method, rows in variant_rows(cell).items():
            by_name: dict[str, list[VariantRuns]] = defaultdict(list)
            for row in rows:
                if len(row.changes) == 1:
                    by_name[next(iter(row.changes))].append(row)
            for name, own in by_name.items():
                if not rows[0].changes:
                    text = as_typed(rows[0].runs[0].spec.config.get(name))
                    own = [replace(rows[0], changes={name: text}), *own]
                own = [row for row in own if has_a_place(row.changes[name])]
                if len({row.changes[name] for row in own}) >= LEAST_VALUES:
                    own.sort(key=lambda row: float(row.changes[name]))
                    shown = replace(query, metrics=METRICS_SHOWN)
                    where = cell.where
                    findings.append(sensitivity_findings(method, where, own, [name], False, shown))
    return findings


def variant_rows(cell: RunCell) -> dict[str, list[VariantRuns]]:
    """Method → its rows, that with every default first; tuned rows and older code are left out."""
    by_method: dict[str, list[VariantRuns]] = defaultdict(list)
    for name, runs in cell.rows.items():
        spec = runs[0].spec
        if not spec.tuned and name == spec.variant:
            changes = {key: as_typed(spec.config[key]) for key in spec.changed}
            title = name.removeprefix(spec.method).strip(" ()") or "as it is"
            by_method[spec.method].append(VariantRuns(title, changes, runs))
    return {
        method: sorted(rows, key=lambda row: bool(row.changes))
        for method, rows in by_method.items()
    }
