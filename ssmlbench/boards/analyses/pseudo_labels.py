"""`analyse pseudo-labels`: precision, recall, coverage and calibration, per label and epoch."""

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
    RunsWithDiagnostics,
    label_names,
    left_out,
    mean_text,
    nothing_recorded,
    table,
    train_rows,
    with_diagnostics,
)
from ssmlbench.boards.analyses.drawing import (
    EPOCHS,
    common_x,
    finish,
    legend,
    line,
    panels,
)
from ssmlbench.boards.query import Query
from ssmlbench.boards.report.style import INK, styles_for
from ssmlbench.protocol.diagnostics import PSEUDO_COLUMNS
from ssmlbench.protocol.metrics import Values
from ssmlbench.protocol.regimes import REGIMES
from ssmlbench.runs.diagnostics import Diagnostics
from ssmlbench.runs.finished import Finished

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = ("precision", "recall", "coverage")
MeasuredCurves = dict[str, dict[str, list[tuple[Any, Any]]]]
"""Row → measure → epochs and values of each seed."""


class PseudoLabelsAnalysis(Analysis):
    """How right, how complete and how well calibrated the labels are that a method gives itself."""

    name = "pseudo-labels"
    summary = "Precision, recall, coverage and calibration of pseudo-labels per label and epoch."

    def find(
        self, cells: Sequence[RunCell], query: Query, options: Mapping[str, Any]
    ) -> list[Findings]:
        """One finding for each cell with a method that gives pseudo-labels to whole pools."""
        found = [findings for cell in cells if (findings := _of_cell(cell))]
        if not found:
            raise nothing_recorded(
                self.name,
                cells,
                "no run here has recorded pseudo-labels of a pool (cap, bbam and others decide them)",
                "cap",
                "bbam",
            )
        return found


def quality(counts: NDArray[Any], rows: int) -> dict[str, Values]:
    """Precision, recall and coverage from PSEUDO_COLUMNS, with the last axis summed or not.

    counts: … × 5 × K or … × 5; rows: unlabelled rows (times labels, where labels were summed).
    """
    axis = 1 if counts.ndim > 1 else 0
    columns = np.moveaxis(np.asarray(counts, dtype=np.float64), axis, 0)
    trusted, positive, hits, true, right = columns
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            "precision": hits / positive,
            "recall": hits / true,
            "coverage": trusted / rows,
            "accuracy": right / trusted,
        }


def calibration_error(counts: NDArray[Any]) -> float:
    """ECE: Σ_b n_b / n · |share of true ones − mean score| over the bins; counts: 3 × bins."""
    number, total, true = np.asarray(counts, dtype=np.float64)
    if number.sum() == 0:
        return float("nan")
    return float(np.abs(true - total).sum() / number.sum())


def unlabelled_count(run: Finished) -> int:
    """Training rows of a run without a label."""
    rows, spec = train_rows(run), run.spec
    return rows - REGIMES[spec.regime].labelled_count(rows, spec.regime_number)


def _of_cell(cell: RunCell) -> Findings | None:
    noted_runs, missing = with_diagnostics(cell, "pseudo_counts")
    if not noted_runs:
        return None
    labels = next(iter(noted_runs.values()))[0][1]["pseudo_counts"].shape[2]
    names = label_names(cell, labels)
    records: list[dict[str, Any]] = []
    curves: MeasuredCurves = {}
    errors: dict[str, list[float]] = {}
    for row, members in noted_runs.items():
        for run, diagnostics in members:
            epochs, counts = diagnostics["pseudo_epochs"], diagnostics["pseudo_counts"]
            rows = unlabelled_count(run)
            records += _records(row, run.spec.seed, epochs, counts, rows, names)
            overall = quality(counts.sum(axis=2, dtype=np.float64), rows * labels)
            for measure in MEASURES:
                curves.setdefault(row, {}).setdefault(measure, []).append(
                    (epochs, overall[measure])
                )
            if "calibration" in diagnostics:
                records += _calibration_records(row, run.spec.seed, diagnostics, names)
                bins = diagnostics["calibration"][-1].sum(axis=2, dtype=np.float64)
                errors.setdefault(row, []).append(calibration_error(bins))
    section = table(
        f"{cell.where} · pseudo-labels",
        ["method", "epochs", "precision", "recall", "coverage", "ECE"],
        _table_rows(curves, errors),
        "After the last epoch in which they were decided, all labels together, mean over seeds. Against "
        "the hidden labels, which no method sees. Coverage: share of entries that are trusted. ECE: of the "
        "averaged network's scores of hidden entries, ten bins.",
        f"no pseudo-labels of whole pools: {', '.join(missing.lacking)}" if missing.lacking else "",
        missing.damage,
        left_out(curves),
    )

    def draw() -> Figure:
        return _figure(cell, curves, noted_runs)

    return Findings(
        "pseudo-labels", cell.where, section, records, draw, "Quality of pseudo-labels."
    )


def _table_rows(
    curves: MeasuredCurves, errors: Mapping[str, Sequence[float]]
) -> list[list[object]]:
    """The epochs of each method, and its measures after the last of them. errors: of calibration."""
    body: list[list[object]] = []
    for row, measured in curves.items():
        last = [mean_text([float(ys[-1]) for _, ys in measured[m]]) for m in MEASURES]
        epochs = measured["precision"][0][0]
        error = mean_text(errors.get(row, []))
        body.append([row, f"{int(epochs[0])} to {int(epochs[-1])}", *last, error])
    return body


def _records(
    row: str, seed: int, epochs: Any, counts: NDArray[Any], rows: int, names: Sequence[str]
) -> list[dict[str, Any]]:
    records = []
    for epoch, at in zip(epochs, counts, strict=True):
        each = quality(at[None], rows)
        for k, name in enumerate(names):
            facts = {"method": row, "seed": seed, "epoch": int(epoch), "label": name}
            numbers = {key: float(values[0][k]) for key, values in each.items()}
            raw = dict(zip(PSEUDO_COLUMNS, map(float, at[:, k]), strict=True))
            records.append({"kind": "pseudo-labels", **facts, **numbers, **raw})
    return records


def _calibration_records(
    row: str, seed: int, diagnostics: Diagnostics, names: Sequence[str]
) -> list[dict[str, Any]]:
    records = []
    for epoch, at in zip(diagnostics["sample_epochs"], diagnostics["calibration"], strict=True):
        for k, name in enumerate(names):
            facts = {"method": row, "seed": seed, "epoch": int(epoch), "label": name}
            records.append({"kind": "calibration", **facts, "ece": calibration_error(at[:, :, k])})
    records += reliability_records(
        diagnostics["calibration"][-1].sum(axis=2, dtype=np.float64), row, seed
    )
    return records


def reliability_records(counts: NDArray[Any], row: str, seed: int) -> list[dict[str, Any]]:
    """The reliability curve after the last epoch, all labels together; counts: 3 × bins."""
    edges = np.linspace(0, 1, counts.shape[1] + 1)
    facts = {"kind": "reliability", "method": row, "seed": seed}
    return [
        {
            **facts,
            "from": float(low),
            "to": float(high),
            "count": float(number),
            "mean_score": float(total / number) if number else float("nan"),
            "share_true": float(true / number) if number else float("nan"),
        }
        for low, high, number, total, true in zip(edges[:-1], edges[1:], *counts, strict=True)
    ]


def _figure(
    cell: RunCell,
    curves: MeasuredCurves,
    rows: RunsWithDiagnostics,
) -> Figure:
    shown = list(curves)[:MOST_LINES]
    styles = styles_for(shown)
    figure, axes = panels(4, height=180)
    for axis, measure in zip(axes, MEASURES, strict=False):
        for row in shown:
            at, values = common_x(curves[row][measure])
            line(axis, at, values, styles[row], row)
        place = f", {cell.where}" if axis is axes[0] else ""
        finish(axis, f"{measure.capitalize()} of pseudo-labels{place}", EPOCHS, measure)
    axes[2].set_ylim(0, 1.05)
    dots = (0, (2, 2))
    axes[3].plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=dots, label="calibrated")
    for row in shown:
        bins = [n["calibration"][-1].sum(axis=2) for _, n in rows[row] if "calibration" in n]
        if bins:
            number, total, true = np.stack(bins).sum(axis=0, dtype=np.float64)
            used = number > 0
            line(axes[3], total[used] / number[used], [true[used] / number[used]], styles[row], row)
    finish(
        axes[3], "Reliability after the last epoch", "mean score of the bin", "share that is true"
    )
    legend(axes[3])
    return figure
