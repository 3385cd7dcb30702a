"""`analyse scores`: densities of positive and negative scores, and how far apart they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ssmlbench.boards.analyses.contract import (
    Analysis,
    Findings,
    RunCell,
    ScoredRuns,
    label_names,
    left_out,
    mean_text,
    no_scores,
    table,
    with_diagnostics,
    with_scores,
)
from ssmlbench.boards.analyses.drawing import finish, legend, panels
from ssmlbench.boards.query import Query
from ssmlbench.boards.report.style import numbered_style
from ssmlbench.protocol.diagnostics import GROUPS, HISTOGRAM_BINS
from ssmlbench.protocol.metrics import Values
from ssmlbench.runs.scores import StoredScores

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 8
"""Panels of a figure: one for each method, or two (of training entries)."""


class ScoresAnalysis(Analysis):
    """Test scores of positives and negatives; cosines and gradients of training entries."""

    name = "scores"
    summary = "Densities of positive and negative scores, 1-Wasserstein distance per label."

    def find(
        self, cells: Sequence[RunCell], query: Query, options: Mapping[str, Any]
    ) -> list[Findings]:
        """The test scores of each cell, and its training entries where runs noted them."""
        found: list[Findings] = []
        for cell in cells:
            stored, missing = with_scores(cell)
            if stored:
                found.append(_test_scores(cell, stored, missing.text))
            if training := _training_entries(cell):
                found.append(training)
        if not found:
            raise no_scores(self.name, cells)
        return found


def distances(scores: NDArray[Any], truth: NDArray[np.bool_]) -> Values:
    """The 1-Wasserstein distance between a label's positive and negative scores; NaN without both."""
    from scipy.stats import wasserstein_distance

    found = np.full(truth.shape[1], np.nan)
    for k in np.flatnonzero(truth.any(axis=0) & ~truth.all(axis=0)):
        found[k] = wasserstein_distance(scores[truth[:, k], k], scores[~truth[:, k], k])
    return found


def _test_scores(cell: RunCell, stored: ScoredRuns, lost: str) -> Findings:
    names = label_names(cell, next(iter(stored.values()))[0][1].truth.shape[1])
    records: list[dict[str, Any]] = []
    body: list[list[object]] = []
    for row, runs in stored.items():
        averages = []
        for run, one in runs:
            apart = distances(one.scores, one.truth)
            averages.append(float(np.nanmean(apart)) if np.isfinite(apart).any() else np.nan)
            for k, name in enumerate(names):
                positive = one.scores[one.truth[:, k], k]
                negative = one.scores[~one.truth[:, k], k]
                means = [
                    float(part.mean()) if part.size else np.nan for part in (positive, negative)
                ]
                facts = {"kind": "label", "method": row, "seed": run.spec.seed, "label": name}
                facts |= {"wasserstein": apart[k], "mean_positive": means[0]}
                records.append({**facts, "mean_negative": means[1]})
        spread = (
            f" ± {np.std(averages, ddof=1):.4f}"
            if len(averages) > 1 and np.isfinite(averages).all()
            else ""
        )
        body.append([row, len(averages), f"{mean_text(averages)}{spread}"])
    densities = {row: _score_histograms([one for _, one in runs]) for row, runs in stored.items()}
    for row, by_class in densities.items():
        for label, counts in by_class.items():
            facts = {"kind": "density", "method": row, "entries": label}
            records += _histogram_records(facts, counts, 0.0)
    section = table(
        f"{cell.where} · scores of positives and negatives",
        ["method", "seeds", "1-Wasserstein distance"],
        body,
        "Between the test scores of a label's positives and negatives, averaged over labels with both. It "
        "grows with separation and with the spread of the scores: compare methods whose scores mean "
        "the same.",
        lost,
        left_out(stored, MOST_PANELS),
    )

    def draw() -> Figure:
        shown = list(stored)[:MOST_PANELS]
        figure, axes = panels(len(shown), height=140)
        for axis, row in zip(axes, shown, strict=True):
            for i, (label, counts) in enumerate(densities[row].items()):
                _density(axis, counts, 0, 1, label, i)
            axis.set_yscale("log")
            place = f", {cell.where}" if axis is axes[0] else ""
            finish(axis, f"{row}: test scores{place}", "", "density (log)")
        axes[-1].set_xlabel("score, all labels and seeds together")
        legend(axes[-1])
        return figure

    return Findings("scores", cell.where, section, records, draw, "Densities of test scores.")


def _score_histograms(runs: Sequence[StoredScores]) -> dict[str, NDArray[Any]]:
    """Histograms of the scores of positives and of negatives, all labels and runs together."""
    found: dict[str, NDArray[Any]] = {}
    for name, positive in (("positives", True), ("negatives", False)):
        parts = (one.scores[one.truth == positive] for one in runs)
        found[name] = np.sum([np.histogram(p, HISTOGRAM_BINS, (0, 1))[0] for p in parts], axis=0)
    return found


def _histogram_records(
    facts: Mapping[str, Any], counts: NDArray[Any], low: float
) -> list[dict[str, Any]]:
    """One record for each bin over [low, 1]."""
    edges = np.linspace(low, 1, len(counts) + 1)
    return [
        {**facts, "from": float(a), "to": float(b), "count": float(n)}
        for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)
    ]


def _density(axis: Axes, counts: NDArray[Any], low: float, high: float, label: str, i: int) -> None:
    edges = np.linspace(low, high, len(counts) + 1)
    total = counts.sum() * (edges[1] - edges[0])
    if total > 0:
        style = numbered_style(i)
        axis.stairs(
            counts / total,
            edges,
            color=style.colour,
            linestyle=style.dash,
            linewidth=1.4,
            fill=False,
            label=label,
        )


def gradient_histograms(scores: NDArray[Any]) -> NDArray[Any]:
    """Histograms of |p − y| from those of p: observed positives are learnt as 1, all others as 0."""
    observed, *others = scores
    return np.stack([observed[::-1], *others])


def mean_gradients(histograms: NDArray[Any], sums: NDArray[Any] | None) -> Values:
    """The mean |p − y| of each of GROUPS; NaN for a group without entries.

    sums: of the scores of each group, which make it exact; without them the middle of a bin stands for
    the scores in it.
    """
    counts = histograms.sum(axis=1)
    if sums is None:
        centres = (np.arange(HISTOGRAM_BINS) + 0.5) / HISTOGRAM_BINS
        sums = histograms @ centres
    found = np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return np.concatenate([1 - found[:1], found[1:]])  # y is 1 for observed positives


def _training_entries(cell: RunCell) -> Findings | None:
    """HML's Figure 2: cosines (or scores) and gradient magnitudes of the training entries."""
    found, missing = with_diagnostics(cell, "scores")
    if not found:
        return None
    records: list[dict[str, Any]] = []
    sums: dict[tuple[str, str], NDArray[Any]] = {}
    exact: dict[str, list[NDArray[Any]]] = {}
    for row, members in found.items():
        for run, noted in members:
            if "score_sums" in noted:
                exact.setdefault(row, []).append(noted["score_sums"][-1].astype(np.float64))
            kinds = {
                "score": (noted["scores"][-1], 0.0),
                "gradient": (gradient_histograms(noted["scores"][-1]), 0.0),
                "cosine": (noted.arrays.get("cosines"), -1.0),
            }
            for kind, (counts, low) in kinds.items():
                if counts is None:
                    continue
                last = counts if counts.ndim == 2 else counts[-1]
                sums[row, kind] = sums.get((row, kind), 0) + last
                for group, bins in zip(GROUPS, last, strict=True):
                    facts = {"method": row, "seed": run.spec.seed, "kind": kind, "entries": group}
                    records += _histogram_records(facts, bins, low)
    body = []
    for row, members in found.items():
        whole = np.sum(exact[row], axis=0) if len(exact.get(row, ())) == len(members) else None
        means = mean_gradients(sums[row, "score"].astype(np.float64), whole)
        body.append([row, *(f"{mean:.4f}" if np.isfinite(mean) else "–" for mean in means)])
        records += [
            {"method": row, "kind": "mean gradient", "entries": group, "mean": float(mean)}
            for group, mean in zip(GROUPS, means, strict=True)
        ]
    section = table(
        f"{cell.where} · training entries",
        ["method", *(f"mean |p−y|, {group}" for group in GROUPS)],
        body,
        "Of at most 2,048 training rows after the last epoch. y is 1 for observed positives and 0 for all "
        "others, so that hidden positives are false negatives of a method that assumes them negative.",
        missing.text,
        left_out(found, MOST_PANELS // 2),
    )

    def draw() -> Figure:
        shown = list(found)[: MOST_PANELS // 2]
        figure, axes = panels(2 * len(shown), height=135)
        for i, row in enumerate(shown):
            kind = "cosine" if (row, "cosine") in sums else "score"
            for number, (group, counts) in enumerate(zip(GROUPS, sums[row, kind], strict=True)):
                _density(axes[2 * i], counts, -1 if kind == "cosine" else 0, 1, group, number)
            place = f", {cell.where}" if i == 0 else ""
            finish(axes[2 * i], f"{row}: training entries{place}", kind, "density")
            magnitudes = sums[row, "gradient"]
            for number, (group, counts) in enumerate(zip(GROUPS, magnitudes, strict=True)):
                _density(axes[2 * i + 1], counts, 0, 1, group, number)
            axes[2 * i + 1].set_yscale("log")
            finish(axes[2 * i + 1], f"{row}: gradients", "|p − y|", "density (log)")
        legend(axes[-1])
        return figure

    return Findings("scores-training", cell.where, section, records, draw, "Training entries.")
