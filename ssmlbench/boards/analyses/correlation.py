"""`analyse correlation`: the labels' weight vectors against their co-occurrence (HML, Eq. 8, Figure 6)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ssmlbench.boards.analyses.contract import (
    Analysis,
    Findings,
    Option,
    RunCell,
    RunsWithDiagnostics,
    cells_with,
    label_names,
    nothing_recorded,
    table,
    with_diagnostics,
)
from ssmlbench.boards.analyses.drawing import panels
from ssmlbench.boards.query import Query
from ssmlbench.boards.render.document import TableSection
from ssmlbench.boards.report.style import INK, MUTED, plain_numbers
from ssmlbench.core.errors import UserError
from ssmlbench.protocol.diagnostics import PAIRED_LABELS
from ssmlbench.protocol.metrics import Values
from ssmlbench.runs.diagnostics import Diagnostics
from ssmlbench.runs.finished import Finished

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LABELS = 30
SHADES = 24
SCALE, MARGIN = 20.0, 0.3
"""HML's s and m, for a method that has none."""


class CorrelationAnalysis(Analysis):
    """Corr(i, j) = σ(s cos(angle between w_i and w_j + m)), and Jaccard of the labels' rows."""

    name = "correlation"
    summary = "Label embeddings against co-occurrence: clustered heat map and rank correlation."
    options = (
        Option("of", "", "The row that is shown; by default the best-ranked."),
        Option("threshold", 0.0, "Only labels with a partner of at least this Jaccard."),
    )

    def find(
        self, cells: Sequence[RunCell], query: Query, options: Mapping[str, Any]
    ) -> list[Findings]:
        """One finding for each cell whose runs recorded weights and pairs."""
        threshold = float(options.get("threshold", 0.0))
        if not 0 <= threshold <= 1:
            raise UserError(f"--threshold {threshold:g}: must lie in [0, 1]")
        labels = max((_label_count(cell) for cell in cells), default=0)
        if labels == 1:
            raise UserError(
                "analyse correlation: the data set has one label, and so no pair of labels"
            )
        findings = []
        of = str(options.get("of", ""))
        for cell in cells_with(cells, [of], f"--of {of}") if of else cells:
            rows, missing = with_diagnostics(cell, "head_weights")
            rows = {n: [m for m in runs if "pair_counts" in m[1]] for n, runs in rows.items()}
            rows = {name: runs for name, runs in rows.items() if runs}
            if rows and _label_count(cell) != 1:
                findings.append(_of_cell(cell, rows, of, threshold, missing.damage))
        if not findings and labels > PAIRED_LABELS:
            raise UserError(
                f"analyse correlation: {labels:,} labels, and pairs are counted up to {PAIRED_LABELS}; "
                "`ssmlbench analyse labels` shows any number"
            )
        if not findings:
            raise nothing_recorded(
                self.name,
                cells,
                "no run here has recorded its classifier's weights (estimators have none)",
                "hml",
            )
        return findings


def _label_count(cell: RunCell) -> int:
    """The labels of a cell's data set; 0 if its runs did not record them."""
    runs = [run for members in cell.rows.values() for run in members]
    return max(int(run.result.get("data", {}).get("labels", 0)) for run in runs)


def embedding_correlation(weights: NDArray[Any], scale: float, margin: float) -> Values:
    """HML's Eq. 8: σ(s · cos(arccos(w_i·w_j / |w_i||w_j|) + m)), K × K."""
    unit = weights / np.maximum(np.linalg.norm(weights, axis=1, keepdims=True), 1e-12)
    angles = np.arccos(np.clip(unit @ unit.T, -1, 1))
    correlation: Values = 1 / (1 + np.exp(-scale * np.cos(angles + margin)))
    return correlation


def jaccard(pairs: NDArray[Any]) -> Values:
    """|i ∧ j| / |i ∨ j| of the training rows, from counts of pairs; 0 where neither occurs."""
    counts = np.diag(pairs).astype(np.float64)
    either = counts[:, None] + counts[None] - pairs
    index: Values = np.where(either > 0, pairs / np.maximum(either, 1), 0.0)
    return index


def rank_correlation(a: Values, b: Values) -> float:
    """Spearman's ρ over the pairs of different labels."""
    from scipy.stats import spearmanr

    above = np.triu_indices(len(a), 1)
    if len(above[0]) < 3:
        return math.nan
    return float(spearmanr(a[above], b[above]).statistic)


def cluster_order(similarity: Values) -> list[int]:
    """The order of the leaves of average-linkage clustering: similar labels are neighbours."""
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    if len(similarity) < 3:
        return list(range(len(similarity)))
    distance = 1 - (similarity + similarity.T) / 2
    np.fill_diagonal(distance, 0)
    return [int(i) for i in leaves_list(linkage(squareform(distance, checks=False), "average"))]


def scale_and_margin(run: Finished) -> tuple[float, float]:
    """The scale s and the margin m of a run's method; HML's defaults if it has no angular margin."""
    config = run.spec.config
    scale = config.get("scale", SCALE)
    margin = config.get("margin", MARGIN) if run.spec.method == "hml" else MARGIN
    numbers = [value if isinstance(value, int | float) else None for value in (scale, margin)]
    return float(numbers[0] or SCALE), float(MARGIN if numbers[1] is None else numbers[1])


Ranks = Mapping[str, Sequence[tuple[int, float]]]
"""Row → the seed and Spearman's ρ of each run."""


def _of_cell(
    cell: RunCell, rows: RunsWithDiagnostics, of: str, threshold: float, damage: str
) -> Findings:
    if of and of not in rows:
        raise UserError(
            f"--of {of}: its runs in {cell.where} have recorded no weights; {', '.join(rows)} have"
        )
    shown = of or next(iter(rows))
    first = next(iter(rows.values()))[0][1]
    names = label_names(cell, len(first["label_counts"]))
    truth = jaccard(first["pair_counts"])
    ranks = {
        row: [
            (run.spec.seed, rank_correlation(_learnt(run, diagnostics), truth))
            for run, diagnostics in runs
        ]
        for row, runs in rows.items()
    }
    learnt: Values = np.mean(
        [_learnt(run, diagnostics) for run, diagnostics in rows[shown]], axis=0
    )
    kept = _drawn_labels(truth, threshold, cell.where)
    return Findings(
        "correlation",
        cell.where,
        _table(cell.where, ranks, damage),
        [*_rank_records(ranks), *_pair_records(shown, names, learnt, truth)],
        lambda: _figure(cell.where, shown, names, learnt, truth, kept),
        "Label correlation.",
    )


def _learnt(run: Finished, diagnostics: Diagnostics) -> Values:
    """Corr(i, j) of the weights after the last epoch."""
    return embedding_correlation(diagnostics["head_weights"][-1], *scale_and_margin(run))


def _drawn_labels(truth: Values, threshold: float, where: str) -> NDArray[np.intp]:
    """The labels of the heat maps: those with a close enough partner, at most MOST_LABELS of them."""
    closest = (truth - np.diag(np.diag(truth))).max(axis=1)  # a label is not its own partner
    kept = np.flatnonzero(closest >= threshold) if threshold else np.arange(len(truth))
    if len(kept) > MOST_LABELS:
        kept = np.sort(np.argsort(-closest, kind="stable")[:MOST_LABELS])
    if not len(kept):
        raise UserError(
            f"--threshold {threshold:g}: no label of {where} has such a partner; the largest Jaccard "
            f"is {closest.max():.3f}"
        )
    return kept


def _table(where: str, ranks: Ranks, damage: str) -> TableSection:
    body = []
    for row, by_seed in ranks.items():
        rhos = [rho for _, rho in by_seed]
        spread = f" ± {np.std(rhos, ddof=1):.3f}" if len(rhos) > 1 else ""
        text = f"{np.mean(rhos):+.3f}{spread}" if np.isfinite(rhos).all() else "–"
        body.append([row, len(rhos), text])
    return table(
        f"{where} · label correlation",
        ["method", "seeds", "Spearman's ρ"],
        body,
        "Between Corr(i, j) of the final classifier's weights and Jaccard of the labels over "
        "the true labels of the training rows (read by the judge alone), over all pairs of labels.",
        "A linear head's weights are normalised; s and m are the method's own (of those that hml learns, "
        "the start), or HML's 20 and 0.3.",
        damage,
    )


def _rank_records(ranks: Ranks) -> list[dict[str, Any]]:
    return [
        {"kind": "rank", "method": row, "seed": seed, "spearman": rho}
        for row, by_seed in ranks.items()
        for seed, rho in by_seed
    ]


def _pair_records(
    method: str, names: Sequence[str], learnt: Values, truth: Values
) -> list[dict[str, Any]]:
    return [
        {
            "kind": "pair",
            "method": method,
            "label": names[i],
            "with": names[j],
            "correlation": learnt[i, j],
            "jaccard": truth[i, j],
        }
        for i in range(len(names))
        for j in range(i + 1, len(names))
    ]


def _figure(
    where: str,
    method: str,
    names: Sequence[str],
    learnt: Values,
    truth: Values,
    kept: NDArray[np.intp],
) -> Figure:
    """Two heat maps with the same order of labels: clustered by their co-occurrence."""
    order = kept[cluster_order(truth[np.ix_(kept, kept)])]
    figure, axes = panels(2, height=min(330.0, max(260.0, 90 + 14.0 * len(kept))))
    labels = [names[k] for k in order]
    maps = (
        (f"Learnt: Corr of {method}, {where}", "Corr(i, j)", learnt),
        ("Data: Jaccard of the true labels", "Jaccard index", truth),
    )
    for axis, (title, scale, values) in zip(axes, maps, strict=True):
        _heat_map(axis, values[np.ix_(order, order)], labels, title, scale)
        axis.set_xlabel(
            "label" if len(kept) == len(names) else f"label, {len(kept)} of {len(names)}"
        )
    return figure


def _heat_map(axis: Axes, values: Values, labels: Sequence[str], title: str, scale: str) -> None:
    from matplotlib import colormaps

    shown = values.copy()
    np.fill_diagonal(shown, 0)  # crossed out: a label is not its own partner
    # With few shades the colour bar is drawn, and not a bitmap, which a report's page leaves out.
    greys = colormaps["Greys"].resampled(SHADES)
    mesh = axis.pcolormesh(shown, cmap=greys, vmin=0, edgecolors="white", linewidth=0.4)
    for i in range(len(labels)):
        axis.plot([i, i + 1], [i, i + 1], color=MUTED, linewidth=0.8)
    axis.invert_yaxis()
    axis.set_aspect("equal")
    short = [label if len(label) <= 14 else f"{label[:13]}…" for label in labels]
    places = np.arange(len(labels)) + 0.5
    axis.set_xticks(places, short, rotation=70, ha="right", fontsize=7)
    axis.set_yticks(places, short, fontsize=7)
    axis.tick_params(length=0)
    axis.set_title(title, loc="left", fontsize=9.5, fontweight="bold")
    bar = axis.figure.colorbar(mesh, ax=axis, shrink=0.8, label=scale)
    bar.ax.tick_params(labelcolor=INK, labelsize=7.5)
    plain_numbers(bar.ax.yaxis)
