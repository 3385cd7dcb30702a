"""Findings about variants of one method: ablations with paired differences, and sensitivity curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ssmlbench.boards.analyses.contract import Findings, table
from ssmlbench.boards.analyses.drawing import (
    INTERVALS,
    dot_rows,
    finish,
    legend,
    line,
    panels,
)
from ssmlbench.boards.analyses.gradients import GRADIENTS, gradient_imbalance
from ssmlbench.boards.baseline import paired_difference
from ssmlbench.boards.board import Difference
from ssmlbench.boards.columns import COLUMNS, Column
from ssmlbench.boards.query import Query
from ssmlbench.boards.report.style import HUES, INK, styles_for
from ssmlbench.runs.finished import Finished

if TYPE_CHECKING:
    from matplotlib.figure import Figure


GRADIENTS_NOTE = (
    f"{GRADIENTS.title}: of at most 2,048 training rows after the last epoch; Σ⁺ over observed positives, "
    "Σ⁻ over all other entries; 0 is balance (HML, Figure 3)."
)


@dataclass(frozen=True)
class VariantRuns:
    """The finished runs of one variant in one place."""

    name: str
    changes: Mapping[str, str]
    runs: Sequence[Finished]

    def values(self, query: Query, metric: str) -> dict[int, float]:
        """Seed → the run's value of a metric, or the imbalance of its gradients."""
        if metric == GRADIENTS.key:
            return {run.spec.seed: gradient_imbalance(run) for run in self.runs}
        return {run.spec.seed: query.value(run, metric) for run in self.runs}


def ablation_findings(
    method: str, where: str, variants: Sequence[VariantRuns], query: Query
) -> Findings:
    """Every variant against the first, which is the method as it is."""
    metrics = [COLUMNS[key] for key in query.metrics]
    records: list[dict[str, Any]] = []
    body = []
    for variant in variants:
        own = [_ablation_record(method, variant, variants[0], m.key, query) for m in metrics]
        cells = [cell for record in own for cell in _ablation_cells(record, variant is variants[0])]
        body.append([variant.name, len(variant.runs), *cells])
        records += own
    headers = ["variant", "seeds", *(h for m in metrics for h in (m.title, "difference"))]
    section = table(
        f"{where} · ablation of {method}",
        headers,
        body,
        f"Difference to {method} as it is, seed by seed, with a 95 % t interval over common seeds (none "
        "below 3).",
    )

    def draw() -> Figure:
        figure, axes = panels(len(metrics), height=70 + 17 * len(variants))
        for axis, metric in zip(axes, metrics, strict=True):
            _differences(axis, metric, variants, records, query)
            place = f", {where}" if axis is axes[0] else ""
            better = "right is better" if metric.higher_is_better else "left is better"
            title = f"{metric.title}: {method} with one change{place}"
            finish(axis, title, f"difference to {method} as it is ({better})", "", named_rows=True)
        return figure

    return Findings(f"ablation {method}", where, section, records, draw, f"Ablation of {method}.")


def _ablation_record(
    method: str, variant: VariantRuns, base: VariantRuns, metric: str, query: Query
) -> dict[str, Any]:
    """The mean of a variant, and its difference to the method as it is."""
    ours, theirs = (v.values(query, metric) for v in (variant, base))
    folds = base.runs[0].spec.folds if base.runs else None
    difference = paired_difference(ours, theirs, folds) or Difference(math.nan, 0)
    low, high = difference.interval or (math.nan, math.nan)
    return {
        "method": method,
        "variant": variant.name,
        "metric": metric,
        "changes": ", ".join(f"{k}={v}" for k, v in variant.changes.items()),
        "mean": float(np.mean(list(ours.values()))) if ours else math.nan,
        "difference": difference.mean,
        "low": low,
        "high": high,
        "seeds": difference.seeds,
    }


def _ablation_cells(record: Mapping[str, Any], is_base: bool) -> tuple[str, str]:
    low, high = record["low"], record["high"]
    interval = "" if math.isnan(low) else f" [{low:+.4f}, {high:+.4f}]"
    difference = "–" if is_base else f"{record['difference']:+.4f}{interval}"
    return f"{record['mean']:.4f}", difference


def _differences(
    axis: Any,
    metric: Column,
    variants: Sequence[VariantRuns],
    records: Sequence[Mapping[str, Any]],
    query: Query,
) -> None:
    """The difference of each seed as a dot, with the interval of their mean."""
    base = variants[0]
    own = [r for r in records if r["metric"] == metric.key and r["variant"] != base.name]
    for y, record in enumerate(own):
        if not math.isnan(record["low"]):
            ends = [record["low"], record["high"]]
            axis.plot(ends, [y, y], color=HUES[0], linewidth=1.6, label=INTERVALS)
    theirs = base.values(query, metric.key)
    rows = {
        v.name: [x - theirs[s] for s, x in v.values(query, metric.key).items() if s in theirs]
        for v in variants[1:]
    }
    dot_rows(axis, rows)
    axis.axvline(0, color=INK, linewidth=0.9)


def sensitivity_findings(
    method: str,
    where: str,
    variants: Sequence[VariantRuns],
    parameters: Sequence[str],
    together: bool,
    query: Query,
    gradients: bool = False,
) -> Findings:
    """Each metric over a hyper-parameter; with several together, one line for each value of the others.

    gradients: with the imbalance of gradients as a further curve.
    """
    metrics: list[Column] = [COLUMNS[key] for key in query.metrics]
    metrics += [GRADIENTS] if gradients else []
    records: list[dict[str, Any]] = []
    body = []
    for variant in variants:
        cells: list[object] = []
        for metric in metrics:
            values = list(variant.values(query, metric.key).values())
            mean = float(np.mean(values)) if values else math.nan
            std = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
            facts = {"method": method, **variant.changes, "metric": metric.key}
            records.append({**facts, "mean": mean, "std": std, "seeds": len(values)})
            cells.append(f"{mean:.4f}" + ("" if math.isnan(std) else f" ± {std:.4f}"))
        body.append([variant.name, len(variant.runs), *cells])
    section = table(
        f"{where} · sensitivity of {method}",
        ["hyper-parameters", "seeds", *(metric.title for metric in metrics)],
        body,
        "All combinations." if together else "One at a time, the others at their defaults.",
        "Mean ± std over seeds. A value that is best here was chosen on the test rows: report the default, "
        "or choose by `ssmlbench tune`.",
        GRADIENTS_NOTE if gradients else "",
    )
    shown = parameters[:1] if together else parameters

    def draw() -> Figure:
        figure, axes = panels(len(shown) * len(metrics), height=165)
        cells = [(parameter, metric) for parameter in shown for metric in metrics]
        for axis, (parameter, metric) in zip(axes, cells, strict=True):
            _curves(axis, variants, parameter, metric, query, method)
            place = f", {where}" if axis is axes[0] else ""
            title = f"{metric.title} of {method} over {parameter}{place}"
            finish(axis, title, parameter, metric.title)
        if together:
            legend(*axes)
        return figure

    title = f"Sensitivity of {method} to {', '.join(parameters)}."
    name = f"sensitivity {method} {' '.join(parameters)}"
    return Findings(name, where, section, records, draw, title)


def _curves(
    axis: Any,
    variants: Sequence[VariantRuns],
    parameter: str,
    metric: Column,
    query: Query,
    method: str,
) -> None:
    """One line for each setting of the other parameters, over the values of one."""
    lines: dict[str, list[VariantRuns]] = {}
    for variant in variants:
        if parameter in variant.changes and variant.runs:
            others = [f"{k}={v}" for k, v in variant.changes.items() if k != parameter]
            lines.setdefault(", ".join(others) or method, []).append(variant)
    texts = list(dict.fromkeys(v.changes[parameter] for row in lines.values() for v in row))
    numeric = all(has_a_place(text) for text in texts)
    places = {text: float(text) if numeric else float(i) for i, text in enumerate(texts)}
    styles = styles_for(list(lines))
    for name, row in lines.items():
        seeds = set.intersection(*(set(v.values(query, metric.key)) for v in row))
        ordered = sorted(row, key=lambda v: places[v.changes[parameter]])
        curves = [[v.values(query, metric.key)[seed] for v in ordered] for seed in sorted(seeds)]
        if curves:
            at = [places[v.changes[parameter]] for v in ordered]
            line(axis, at, curves, styles[name], name)
    axis.set_xticks(list(places.values()), list(places), fontsize=8)


def has_a_place(text: str) -> bool:
    """Whether a value of a hyper-parameter can be a place on an axis."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
