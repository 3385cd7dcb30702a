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
    label_names,
    left_out,
    mean_text,
    no_scores,
    scored_runs,
    table,
    with_diagnostics,
    without_scores,
)
from ssmlbench.boards.analyses.drawing import finish, legend, panels
from ssmlbench.boards.query import Query
from ssmlbench.boards.report.style import numbered_style
from ssmlbench.protocol.diagnostics import GROUPS, HISTOGRAM_BINS
from ssmlbench.protocol.matrices import blocks
from ssmlbench.protocol.matrices import by_label as columns_of
from ssmlbench.protocol.metrics import Values
from ssmlbench.runs.diagnostics import Diagnostics
from ssmlbench.runs.finished import Finished
from ssmlbench.runs.scores import StoredScores

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 8
"""Panels of a figure: one for each method, or two (of training entries)."""
LOWEST = {"score": 0.0, "gradient": 0.0, "cosine": -1.0}
"""Where the histograms of training entries begin; all end at 1."""


class ScoresAnalysis(Analysis):
    """Test scores of positives and negatives; cosines and gradients of training entries."""

    name = "scores"
    summary = "Densities of positive and negative scores, 1-Wasserstein distance per label."

    def find(
        self, cells: Sequence[RunCell], query: Query, options: Mapping[str, Any]
    ) -> list[Findings]:
        """The test scores of each cell, and its training entries where runs recorded them."""
        parts = (find(cell) for cell in cells for find in (_test_scores, _training_entries))
        if not (findings := [part for part in parts if part]):
            raise no_scores(self.name, cells)
        return findings


def distances(scores: NDArray[Any], truth: NDArray[np.bool_]) -> Values:
    """The 1-Wasserstein distance between a label's positive and negative scores; NaN without both.

    The area between both distribution functions, a step from each sorted score to the next.
    """
    rows, labels = truth.shape
    count = np.count_nonzero(truth, axis=0)
    by_label = np.empty(labels)
    for part in blocks(labels, rows):
        columns = columns_of(scores[:, part])
        order = np.argsort(columns, axis=1)
        steps = np.diff(np.take_along_axis(columns, order, axis=1).astype(np.float64), axis=1)
        positives = np.take_along_axis(columns_of(truth[:, part]), order, axis=1).cumsum(axis=1)
        positives, total = positives[:, :-1], count[part, None]
        with np.errstate(invalid="ignore"):  # 0 / 0 without positives or negatives: NaN
            apart = positives / total - (np.arange(1, rows) - positives) / (rows - total)
        by_label[part] = (steps * np.abs(apart)).sum(axis=1)
    by_label[(count == 0) | (count == rows)] = np.nan
    return by_label


def _test_scores(cell: RunCell) -> Findings | None:
    """The test scores of a cell's runs, read one after the other; None if there are none."""
    missing = without_scores()
    names: list[str] = []
    apart: dict[str, list[Values]] = {}
    densities: dict[str, dict[str, NDArray[Any]]] = {}
    label_records: list[dict[str, Any]] = []
    for row, run, one in scored_runs(cell, missing):
        names = names or label_names(cell, one.truth.shape[1])
        by_label = distances(one.scores, one.truth)
        apart.setdefault(row, []).append(by_label)
        label_records += _label_records(row, run.spec.seed, one, by_label, names)
        so_far = densities.setdefault(row, {})
        for entries, counts in _score_histograms(one).items():
            so_far[entries] = so_far.get(entries, 0) + counts
    if not apart:
        return None
    density_records = [
        record
        for row, by_class in densities.items()
        for entries, counts in by_class.items()
        for record in _histogram_records(
            {"kind": "density", "method": row, "entries": entries}, counts, 0.0
        )
    ]
    section = table(
        f"{cell.where} · scores of positives and negatives",
        ["method", "seeds", "1-Wasserstein distance"],
        [[row, len(by_seed), _mean_distance(by_seed)] for row, by_seed in apart.items()],
        "Between the test scores of a label's positives and negatives, averaged over labels with both. It "
        "grows with separation and with the spread of the scores: compare methods whose scores mean "
        "the same.",
        missing.text,
        left_out(apart, MOST_PANELS),
    )
    return Findings(
        "scores",
        cell.where,
        section,
        [*label_records, *density_records],
        lambda: _test_figure(cell.where, densities),
        "Densities of test scores.",
    )


def _label_records(
    row: str, seed: int, stored: StoredScores, apart: Values, names: Sequence[str]
) -> list[dict[str, Any]]:
    positive, negative = (
        _means(stored.scores, entries) for entries in (stored.truth, ~stored.truth)
    )
    return [
        {
            "kind": "label",
            "method": row,
            "seed": seed,
            "label": name,
            "wasserstein": apart[k],
            "mean_positive": positive[k],
            "mean_negative": negative[k],
        }
        for k, name in enumerate(names)
    ]


def _means(scores: NDArray[Any], entries: NDArray[np.bool_]) -> Values:
    """The mean score of the entries of each label; NaN where there is none."""
    count = np.count_nonzero(entries, axis=0)
    total = scores.sum(axis=0, dtype=np.float64, where=entries)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _mean_distance(by_seed: Sequence[Values]) -> str:
    """The mean over labels and seeds, and its deviation over seeds where all have one."""
    averages = [
        float(np.nanmean(apart)) if np.isfinite(apart).any() else np.nan for apart in by_seed
    ]
    several = len(averages) > 1 and np.isfinite(averages).all()
    spread = f" ± {np.std(averages, ddof=1):.4f}" if several else ""
    return f"{mean_text(averages)}{spread}"


def _test_figure(where: str, densities: Mapping[str, Mapping[str, NDArray[Any]]]) -> Figure:
    """A panel for each method: the densities of positives and of negatives."""
    shown = list(densities)[:MOST_PANELS]
    figure, axes = panels(len(shown), height=140)
    for axis, row in zip(axes, shown, strict=True):
        _draw_densities(axis, densities[row], 0)
        axis.set_yscale("log")
        place = f", {where}" if axis is axes[0] else ""
        finish(axis, f"{row}: test scores{place}", "", "density (log)")
    axes[-1].set_xlabel("score, all labels and seeds together")
    legend(axes[-1])
    return figure


def _score_histograms(one: StoredScores) -> dict[str, NDArray[Any]]:
    """Histograms of the scores of positives and of negatives, all labels together."""
    classes = {"positives": one.truth, "negatives": ~one.truth}
    return {
        name: np.histogram(one.scores[entries], HISTOGRAM_BINS, (0, 1))[0]
        for name, entries in classes.items()
    }


def _histogram_records(
    facts: Mapping[str, Any], counts: NDArray[Any], low: float
) -> list[dict[str, Any]]:
    """One record for each bin over [low, 1]."""
    edges = np.linspace(low, 1, len(counts) + 1)
    return [
        {**facts, "from": float(a), "to": float(b), "count": float(n)}
        for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)
    ]


def _draw_densities(axis: Axes, histograms: Mapping[str, NDArray[Any]], low: float) -> None:
    """A line for each histogram over [low, 1] that has entries, by its name."""
    for number, (name, counts) in enumerate(histograms.items()):
        edges = np.linspace(low, 1, len(counts) + 1)
        total = counts.sum() * (edges[1] - edges[0])
        if total > 0:
            style = numbered_style(number)
            axis.stairs(
                counts / total,
                edges,
                color=style.colour,
                linestyle=style.dash,
                linewidth=1.4,
                fill=False,
                label=name,
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
    mean_scores = np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return np.concatenate([1 - mean_scores[:1], mean_scores[1:]])  # y is 1 for observed positives


def _training_entries(cell: RunCell) -> Findings | None:
    """HML's Figure 2: cosines (or scores) and gradient magnitudes of the training entries."""
    rows, missing = with_diagnostics(cell, "scores")
    if not rows:
        return None
    records: list[dict[str, Any]] = []
    sums: dict[str, dict[str, NDArray[Any]]] = {row: {} for row in rows}  # row → kind → over seeds
    for row, runs in rows.items():
        for run, diagnostics in runs:
            for kind, histograms in _entry_histograms(diagnostics).items():
                sums[row][kind] = sums[row].get(kind, 0) + histograms
                for group, counts in zip(GROUPS, histograms, strict=True):
                    facts = {"method": row, "seed": run.spec.seed, "kind": kind, "entries": group}
                    records += _histogram_records(facts, counts, LOWEST[kind])
    means = {
        row: mean_gradients(sums[row]["score"].astype(np.float64), _score_sums(runs))
        for row, runs in rows.items()
    }
    records += [
        {"method": row, "kind": "mean gradient", "entries": group, "mean": float(mean)}
        for row, by_group in means.items()
        for group, mean in zip(GROUPS, by_group, strict=True)
    ]
    section = table(
        f"{cell.where} · training entries",
        ["method", *(f"mean |p−y|, {group}" for group in GROUPS)],
        [[row, *(mean_text([mean]) for mean in by_group)] for row, by_group in means.items()],
        "Of at most 2,048 training rows after the last epoch. y is 1 for observed positives and 0 for all "
        "others, so that hidden positives are false negatives of a method that assumes them negative.",
        missing.text,
        left_out(rows, MOST_PANELS // 2),
    )
    return Findings(
        "scores-training",
        cell.where,
        section,
        records,
        lambda: _training_figure(cell.where, sums),
        "Training entries.",
    )


def _entry_histograms(diagnostics: Diagnostics) -> dict[str, NDArray[Any]]:
    """Kind → the histograms of GROUPS after the last epoch; cosines only of a method that has them."""
    scores = diagnostics["scores"][-1]
    histograms = {"score": scores, "gradient": gradient_histograms(scores)}
    cosines = diagnostics.arrays.get("cosines")
    if cosines is not None:
        histograms["cosine"] = cosines if cosines.ndim == 2 else cosines[-1]
    return histograms


def _score_sums(runs: Sequence[tuple[Finished, Diagnostics]]) -> NDArray[Any] | None:
    """The sums of the scores of GROUPS after the last epoch, over all runs; None if a run lacks them."""
    if not all("score_sums" in diagnostics for _, diagnostics in runs):
        return None
    by_run = [diagnostics["score_sums"][-1].astype(np.float64) for _, diagnostics in runs]
    return np.asarray(np.sum(by_run, axis=0))


def _training_figure(where: str, sums: Mapping[str, Mapping[str, NDArray[Any]]]) -> Figure:
    """Two panels for each method: its cosines (or scores), and its gradients."""
    shown = list(sums)[: MOST_PANELS // 2]
    figure, axes = panels(2 * len(shown), height=135)
    for i, row in enumerate(shown):
        entries, gradients = axes[2 * i], axes[2 * i + 1]
        kind = "cosine" if "cosine" in sums[row] else "score"
        _draw_densities(entries, dict(zip(GROUPS, sums[row][kind], strict=True)), LOWEST[kind])
        place = f", {where}" if i == 0 else ""
        finish(entries, f"{row}: training entries{place}", kind, "density")
        _draw_densities(gradients, dict(zip(GROUPS, sums[row]["gradient"], strict=True)), 0)
        gradients.set_yscale("log")
        finish(gradients, f"{row}: gradients", "|p − y|", "density (log)")
    legend(axes[-1])
    return figure
