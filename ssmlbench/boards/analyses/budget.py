"""`analyse budget`: quality against labelled rows and against time; how many labels a method saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ssmlbench.boards.analyses.contract import (
    MOST_LINES,
    Analysis,
    Findings,
    Option,
    RunCell,
    left_out,
    nothing,
    table,
    train_rows,
)
from ssmlbench.boards.analyses.drawing import finish, legend, panels
from ssmlbench.boards.columns import Column
from ssmlbench.boards.query import Query
from ssmlbench.boards.render.document import TableSection
from ssmlbench.boards.report.series import quality_metric
from ssmlbench.boards.report.style import log_ticks, styles_for
from ssmlbench.core.errors import UserError
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.protocol.regimes import REGIMES
from ssmlbench.runs.finished import Finished

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVELS = "0.05,0.1,0.2"
"""What is suggested as π or share."""


class BudgetAnalysis(Analysis):
    """One metric over the labelled rows and over the seconds of training."""

    name = "budget"
    summary = "Quality against labelled rows and wall-clock: the labels a method saves."
    options = (Option("baseline", "bce", "The row whose labels are counted as saved."),)

    def find(
        self, cells: Sequence[RunCell], query: Query, options: Mapping[str, Any]
    ) -> list[Findings]:
        """One finding for each data set and regime with two levels or more."""
        places: dict[tuple[str, str], dict[str, RunCell]] = {}
        for cell in sorted(cells, key=lambda cell: bool(cell.board.separate_reason)):
            if cell.level:  # main boards come first: of two boards with a level, that one counts
                place = (cell.board.dataset, cell.board.regime)
                places.setdefault(place, {}).setdefault(cell.level, cell)
        several = [list(members.values()) for members in places.values() if len(members) > 1]
        if not several and not places:
            raise UserError(
                f"analyse budget: --regime {cells[0].spec.regime} has no π or share, so its labelled rows "
                f"are one number; make runs on data whose labels are all known, with --pi {LEVELS}"
            )
        if not several:
            raise nothing(
                self.name,
                "runs at two or more π (or shares) are needed",
                next(cell.command(cell.rows, level=LEVELS) for cell in cells if cell.level),
            )
        typed = str(options.get("baseline", "bce"))
        rows = dict.fromkeys(name for members in several for cell in members for name in cell.rows)
        if typed not in rows and typed != "bce":
            raise UserError(f"--baseline {typed}: no such row.{did_you_mean(typed, rows)}")
        return [_of_board(members, query, typed) for members in several]


def rows_needed(rows: ArrayLike, quality: ArrayLike, wanted: float) -> float:
    """Labelled rows at which a curve first reaches a quality, between its points in log rows.

    Nothing is extrapolated: NaN if it never does, and if its first point is better already.
    """
    counts, y = np.asarray(rows, dtype=float), np.asarray(quality, dtype=float)
    x = np.log(counts)
    if y[0] >= wanted:
        return float(counts[0]) if y[0] == wanted else float("nan")
    for i in range(1, len(x)):
        if y[i] == wanted:
            return float(counts[i])
        if y[i] > wanted:
            share = (wanted - y[i - 1]) / (y[i] - y[i - 1])
            return float(np.exp(x[i - 1] + share * (x[i] - x[i - 1])))
    return float("nan")


def labelled_rows(run: Finished) -> float:
    """Labelled rows of a run; where the number is a share of entries, that share of all rows.

    Of a run that did not record its rows: the number itself.
    """
    rows, spec = train_rows(run), run.spec
    if not rows:
        return float(spec.regime_number or 1)
    if REGIMES[spec.regime].splits_rows:
        return float(max(REGIMES[spec.regime].labelled_count(rows, spec.regime_number), 1))
    return float(spec.regime_number or 1) * rows


class BudgetPoint(NamedTuple):
    """A row at one level: means over its seeds."""

    rows: float  # labelled
    quality: float
    std: float  # of the quality, over seeds
    seconds: float


BudgetCurves = Mapping[str, Sequence[BudgetPoint]]
"""Row → its points, from few labelled rows to many."""


def _of_board(cells: Sequence[RunCell], query: Query, baseline: str) -> Findings:
    place = f"{cells[0].board.dataset} · {cells[0].board.regime}"
    metric = quality_metric(query)
    curves = _curves(cells, query, metric.key)
    needed = {
        row: [_baseline_rows(curves.get(baseline, ()), point, metric) for point in points]
        for row, points in curves.items()
    }
    return Findings(
        "budget",
        place,
        _table(place, cells, curves, needed, metric, baseline),
        _records(curves, needed, metric.key),
        lambda: _figure(place, curves, metric.title),
        f"{metric.title} and budget.",
    )


def _curves(cells: Sequence[RunCell], query: Query, key: str) -> BudgetCurves:
    curves: dict[str, list[BudgetPoint]] = {}
    for cell in sorted(cells, key=lambda cell: float(cell.level)):
        for row, runs in cell.rows.items():
            values = [query.value(run, key) for run in runs]
            times = [float(run.result.get("cost", {}).get("seconds", np.nan)) for run in runs]
            std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
            point = BudgetPoint(
                labelled_rows(runs[0]), float(np.mean(values)), std, float(np.mean(times))
            )
            curves.setdefault(row, []).append(point)
    return curves


def _baseline_rows(baseline: Sequence[BudgetPoint], point: BudgetPoint, metric: Column) -> float:
    """Labelled rows that the baseline needs for a point's quality; NaN: outside its curve."""
    if len(baseline) < 2:
        return float("nan")
    sign = 1 if metric.higher_is_better else -1
    return rows_needed(
        [p.rows for p in baseline], [sign * p.quality for p in baseline], sign * point.quality
    )


def _records(
    curves: BudgetCurves, needed: Mapping[str, Sequence[float]], key: str
) -> list[dict[str, Any]]:
    return [
        {
            "method": row,
            "labelled_rows": point.rows,
            key: point.quality,
            "std": point.std,
            "seconds": point.seconds,
            "baseline_rows": baseline_rows,
            "labels_saved": labels_saved(point.rows, baseline_rows),
        }
        for row, points in curves.items()
        for point, baseline_rows in zip(points, needed[row], strict=True)
    ]


def labels_saved(rows: float, baseline_rows: float) -> float:
    """The share of the baseline's labelled rows that is saved; NaN if its rows are not known."""
    return 1 - rows / baseline_rows if np.isfinite(baseline_rows) else float("nan")


def _table(
    place: str,
    cells: Sequence[RunCell],
    curves: BudgetCurves,
    needed: Mapping[str, Sequence[float]],
    metric: Column,
    baseline: str,
) -> TableSection:
    reference = curves.get(baseline, ())
    body = []
    for row, points in curves.items():
        for point, baseline_rows in zip(points, needed[row], strict=True):
            saved = labels_saved(point.rows, baseline_rows)
            body.append(
                [
                    row,
                    f"{point.rows:,.0f}",
                    f"{point.quality:.4f}",
                    f"{point.seconds:.1f}",
                    _rows_text(baseline_rows, reference, point, metric),
                    "–" if not np.isfinite(saved) or row == baseline else f"{saved:+.0%}",
                ]
            )
    return table(
        f"{place} · budget",
        [
            "method",
            "labelled rows",
            metric.title,
            "seconds",
            f"rows {baseline} needs",
            "labels saved",
        ],
        body,
        f"Labels saved: 1 − labelled rows / rows that {baseline} needs for the same {metric.title}; "
        "between measured points on a logarithmic scale; nothing is extrapolated. Seconds of training: "
        "mean over seeds."
        if len(reference) > 1
        else f"No row {baseline} at two levels or more, so no labels are saved; --baseline names another.",
        *(
            f"{cell.where}: {cell.board.separate_reason}"
            for cell in cells
            if cell.board.separate_reason
        ),
        left_out(curves),
    )


def _rows_text(
    baseline_rows: float, baseline: Sequence[BudgetPoint], point: BudgetPoint, metric: Column
) -> str:
    """The rows that the baseline needs, or the end of its curve that the point lies beyond."""
    if np.isfinite(baseline_rows):
        return f"{baseline_rows:,.0f}"
    if len(baseline) < 2:
        return "–"
    qualities = [p.quality for p in baseline]
    better = (
        point.quality > max(qualities)
        if metric.higher_is_better
        else point.quality < min(qualities)
    )
    return f"more than {baseline[-1].rows:,.0f}" if better else f"less than {baseline[0].rows:,.0f}"


def _figure(place: str, curves: BudgetCurves, quality: str) -> Figure:
    """The quality against labelled rows above, against seconds below."""
    shown = list(curves)[:MOST_LINES]
    styles = styles_for(shown)
    figure, axes = panels(2, height=215)
    for row in shown:
        points = curves[row]
        means = [point.quality for point in points]
        style = styles[row]
        drawn: dict[str, Any] = {
            "color": style.colour,
            "linestyle": style.dash,
            "linewidth": 1.4,
            "marker": style.marker,
            "ms": 4,
            "label": row,
        }
        stds = [point.std for point in points]
        axes[0].errorbar([point.rows for point in points], means, stds, capsize=2, **drawn)
        axes[1].plot([point.seconds for point in points], means, **drawn)
    spread_shown = any(point.std > 0 for row in shown for point in curves[row])
    bars = "\nbars: ± one standard deviation over seeds" if spread_shown else ""
    for axis, x, at, below in (
        (axes[0], "labelled training rows", f", {place}", bars),
        (axes[1], "seconds of training", "", ""),
    ):
        axis.set_xscale("log")
        log_ticks(axis.xaxis, *axis.get_xlim())
        finish(axis, f"{quality} against {x}{at}", f"{x} (log){below}", quality)
    legend(axes[1])
    return figure
