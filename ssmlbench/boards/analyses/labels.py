"""`analyse labels`: results label by label, in head, medium and tail groups, and VCA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ssmlbench.boards.analyses.contract import (
    MOST_LINES,
    Analysis,
    Findings,
    RunCell,
    label_names,
    left_out,
    mean_text,
    no_scores,
    read_diagnostics,
    scored_runs,
    table,
    without_scores,
)
from ssmlbench.boards.analyses.drawing import (
    dot_rows,
    finish,
    legend,
    line,
    panels,
)
from ssmlbench.boards.query import Query
from ssmlbench.boards.report.style import styles_for
from ssmlbench.core.errors import UserError
from ssmlbench.protocol.decisions import decide
from ssmlbench.protocol.metrics import Values, average_precision
from ssmlbench.runs.scores import StoredScores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GROUPS = ("head", "medium", "tail")
MOST_POINTS = 200
"""With more labels, the figure has means of neighbours by frequency; the table has every label."""


class LabelsAnalysis(Analysis):
    """Average precision, F1 and accuracy of every label, and how evenly a method serves them."""

    name = "labels"
    summary = "Results per label, in head, medium and tail groups, and VCA."

    def find(
        self, cells: Sequence[RunCell], query: Query, options: Mapping[str, Any]
    ) -> list[Findings]:
        """One finding for each cell whose runs have scores."""
        found = [findings for cell in cells if (findings := _of_cell(cell, query.decision))]
        if not found:
            raise no_scores(self.name, cells)
        return found


def frequency_groups(counts: NDArray[Any]) -> list[str]:
    """Head, medium and tail: the labels by frequency, a third each; ties keep their order."""
    order = np.argsort(-np.asarray(counts), kind="stable")
    groups = [""] * len(order)
    for name, members in zip(GROUPS, np.array_split(order, 3), strict=True):
        for label in members:
            groups[label] = name
    return groups


def class_accuracies(
    predicted: NDArray[np.bool_], truth: NDArray[np.bool_]
) -> tuple[Values, Values]:
    """Of each label, the share of its positives and of its negatives that are predicted so."""
    with np.errstate(invalid="ignore"):
        positives = (predicted & truth).sum(axis=0) / truth.sum(axis=0)
        negatives = (~predicted & ~truth).sum(axis=0) / (~truth).sum(axis=0)
    return positives, negatives


def vca(accuracies: Values) -> float:
    """VCA: the mean squared distance of the class-wise accuracies to their mean (BBAM, Def. 2.2).

    NaN for fewer than two classes, which cannot be unequal.
    """
    defined = accuracies[np.isfinite(accuracies)]
    return float(np.mean((defined - defined.mean()) ** 2)) if defined.size > 1 else float("nan")


def two_class_vca(positives: Values, negatives: Values) -> float:
    """The mean over labels of VCA with the label's positives and negatives as the two classes."""
    both = ((positives - negatives) / 2) ** 2
    return float(np.nanmean(both)) if np.isfinite(both).any() else float("nan")


def label_f1(predicted: NDArray[np.bool_], truth: NDArray[np.bool_]) -> Values:
    """F1 of each label; 0 where nothing is positive and nothing predicted."""
    hits = (predicted & truth).sum(axis=0)
    total = predicted.sum(axis=0) + truth.sum(axis=0)
    return np.where(total > 0, 2 * hits / np.maximum(total, 1), 0.0)


def _of_cell(cell: RunCell, decision: str) -> Findings | None:
    truth = next((one.truth for _, _, one in scored_runs(cell)), None)
    if truth is None:
        return None
    counts, source = _train_counts(cell, truth)
    groups, names = frequency_groups(counts), label_names(cell, truth.shape[1])
    missing = without_scores()
    records: list[dict[str, Any]] = []
    summaries: dict[str, list[dict[str, float]]] = {}
    precisions: dict[str, list[Values]] = {}
    for row, run, one in scored_runs(cell, missing):
        per_label, summary = _judge(one, decision, groups)
        summaries.setdefault(row, []).append(summary)
        precisions.setdefault(row, []).append(per_label["average_precision"])
        for k, name in enumerate(names):
            values = {key: float(column[k]) for key, column in per_label.items()}
            facts = {"method": row, "seed": run.spec.seed, "label": name, "group": groups[k]}
            records.append({**facts, "frequency": float(counts[k]), **values})
        records.append(
            {"method": row, "seed": run.spec.seed, "label": "", "group": "all", **summary}
        )
    sizes = ", ".join(f"{group} {groups.count(group)}" for group in GROUPS)
    section = table(
        f"{cell.where} · labels",
        ["method", *(f"mAP {group}" for group in GROUPS), "VCA of labels", "VCA of ±"],
        _table_rows(summaries),
        f"A third of the labels each, by {source}: {sizes}. Means over seeds; label sets by the rule "
        f"{decision}.",
        "VCA of labels: variance over labels of the share of a label's positives that are found. VCA of ±: "
        "mean over labels of the variance between its positives' and its negatives' accuracy. Lower "
        "is fairer; a method that finds nothing is fair too.",
        missing.text,
        left_out(precisions),
    )
    order = np.argsort(-np.asarray(counts), kind="stable")

    def draw() -> Figure:
        return _figure(cell, precisions, summaries, order, names, source)

    return Findings("labels", cell.where, section, records, draw, f"mAP of labels by {source}.")


def _table_rows(summaries: Mapping[str, Sequence[Mapping[str, float]]]) -> list[list[object]]:
    """Each method's mAP of the groups and its variances of accuracy, mean over seeds."""
    body: list[list[object]] = []
    for row, by_seed in summaries.items():
        groups = [mean_text([v[f"map_{g}"] for v in by_seed]) for g in GROUPS]
        fair = [mean_text([v[key] for v in by_seed], 5) for key in ("vca_labels", "vca_classes")]
        body.append([row, *groups, *fair])
    return body


def _train_counts(cell: RunCell, truth: NDArray[np.bool_]) -> tuple[NDArray[Any], str]:
    """Positives of each label in the training rows, or in the test rows of runs that did not note them."""
    for runs in cell.rows.values():
        for run in runs:
            diagnostics = read_diagnostics(run)
            if diagnostics is not None and "label_counts" in diagnostics:
                return diagnostics["label_counts"], "positives in the training rows"
    return truth.sum(axis=0), "positives in the test rows"


def _judge(
    one: StoredScores, decision: str, groups: Sequence[str]
) -> tuple[dict[str, Values], dict[str, float]]:
    if one.lacking(decision):
        raise UserError(
            f"analyse labels: the runs are older than --decision {decision} and have no parameters of it; "
            "type --decision threshold"
        )
    predicted = decide(one.scores, decision, truth=one.truth, parameters=one.parameters)
    precision = np.asarray(average_precision(one.scores, one.truth), dtype=np.float64)
    positives, negatives = class_accuracies(predicted, one.truth)
    per_label = {
        "average_precision": precision,
        "f1": label_f1(predicted, one.truth),
        "accuracy_positives": positives,
        "accuracy_negatives": negatives,
    }
    member = np.asarray(groups)
    summary = {f"map_{group}": _mean(precision[member == group]) for group in GROUPS}
    summary["vca_labels"] = vca(positives)
    summary["vca_classes"] = two_class_vca(positives, negatives)
    return per_label, summary


def _mean(values: Values) -> float:
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


def neighbours(order: NDArray[np.intp]) -> tuple[list[float], list[NDArray[np.intp]]]:
    """The places of a figure's points, and the labels of each: one, or neighbours if there are many."""
    groups = np.array_split(order, min(len(order), MOST_POINTS))
    sizes = np.array([len(group) for group in groups])
    return list(sizes.cumsum() - (sizes + 1) / 2), groups


def _figure(
    cell: RunCell,
    precisions: Mapping[str, Sequence[Values]],
    summaries: Mapping[str, Sequence[Mapping[str, float]]],
    order: NDArray[np.intp],
    names: Sequence[str],
    source: str,
) -> Figure:
    shown = list(precisions)[:MOST_LINES]
    styles = styles_for(shown)
    figure, axes = panels(3, height=215)
    places, groups = neighbours(order)
    for row in shown:
        drawn = [np.array([_mean(p[group]) for group in groups]) for p in precisions[row]]
        line(axes[0], places, drawn, styles[row], row)
    if len(order) <= 24:
        texts = [names[k] if len(names[k]) <= 12 else f"{names[k][:11]}…" for k in order]
        axes[0].set_xticks(range(len(order)), texts, rotation=60, ha="right", fontsize=7.5)
    finish(
        axes[0],
        f"Labels, {cell.where}",
        f"label, most frequent first ({source})",
        "average precision"
        if len(groups) == len(order)
        else "average precision, mean of neighbours",
    )
    width = 0.8 / max(len(shown), 1)
    for i, row in enumerate(shown):
        means = [_mean(np.asarray([s[f"map_{g}"] for s in summaries[row]])) for g in GROUPS]
        at = np.arange(3) + (i - (len(shown) - 1) / 2) * width
        style = styles[row]
        axes[1].plot(at, means, style.marker, color=style.colour, ms=6.5)
        axes[1].vlines(at, 0, means, color=style.colour, linestyles=style.dash, linewidth=1.2)
    axes[1].set_xticks(range(3), GROUPS)
    axes[1].set_xlim(-0.6, 2.6)  # all three, also where a group has no label
    axes[1].set_ylim(bottom=0)
    finish(axes[1], "mAP by frequency of the label", "group of labels", "mAP")
    legend(axes[0])
    fairness = {row: [s["vca_labels"] for s in summaries[row]] for row in shown}
    dot_rows(axes[2], fairness)
    largest = max((v for values in fairness.values() for v in values if np.isfinite(v)), default=0)
    axes[2].set_xlim(0, 1.06 * largest or 0.01)  # a variance is not below zero
    finish(axes[2], "VCA of labels: lower is fairer", "variance of class-wise accuracy", "", True)
    return figure
