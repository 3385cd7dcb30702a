"""`analyse budget`: quality against labelled rows and against time; how many labels a method saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
from ssmlbench.boards.query import Query
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


class Budget(Analysis):
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
            if cell.level:  # of two boards with a level, the main one counts
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


def _of_board(cells: Sequence[RunCell], query: Query, baseline: str) -> Findings:
    place = f"{cells[0].board.dataset} · {cells[0].board.regime}"
    metric = quality_metric(query)
    sign = 1 if metric.higher_is_better else -1
    curves: dict[str, list[tuple[float, float, float, float]]] = {}
    for cell in sorted(cells, key=lambda cell: float(cell.level)):
        for row, runs in cell.rows.items():
            values = [query.value(run, metric.key) for run in runs]
            times = [float(run.result.get("cost", {}).get("seconds", np.nan)) for run in runs]
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
            point = (
                labelled_rows(runs[0]),
                float(np.mean(values)),
                spread,
                float(np.mean(times)),
            )
            curves.setdefault(row, []).append(point)
    reference = curves.get(baseline, [])
    records: list[dict[str, Any]] = []
    body = []
    for row, points in curves.items():
        for rows, mean, std, seconds in points:
            needed = float("nan")
            if len(reference) > 1:
                at, quality = [p[0] for p in reference], [sign * p[1] for p in reference]
                needed = rows_needed(at, quality, sign * mean)
            beyond = bool(reference) and sign * mean > max(sign * p[1] for p in reference)
            saved = 1 - rows / needed if np.isfinite(needed) else float("nan")
            records.append(
                {
                    "method": row,
                    "labelled_rows": rows,
                    metric.key: mean,
                    "std": std,
                    "seconds": seconds,
                    "baseline_rows": needed,
                    "labels_saved": saved,
                }
            )
            text = f"{needed:,.0f}" if np.isfinite(needed) else "–"
            if len(reference) > 1 and not np.isfinite(needed):
                text = (
                    f"more than {reference[-1][0]:,.0f}"
                    if beyond
                    else f"less than {reference[0][0]:,.0f}"
                )
            share = "–" if not np.isfinite(saved) or row == baseline else f"{saved:+.0%}"
            body.append([row, f"{rows:,.0f}", f"{mean:.4f}", f"{seconds:.1f}", text, share])
    section = table(
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

    def draw() -> Figure:
        shown = list(curves)[:MOST_LINES]
        styles = styles_for(shown)
        figure, axes = panels(2, height=215)
        spread_shown = any(std > 0 for row in shown for _, _, std, _ in curves[row])
        for row in shown:
            rows, mean, std, seconds = (
                np.asarray(column) for column in zip(*curves[row], strict=True)
            )
            style = styles[row]
            drawn: dict[str, Any] = {
                "color": style.colour,
                "linestyle": style.dash,
                "linewidth": 1.4,
            }
            drawn |= {"marker": style.marker, "ms": 4, "label": row}
            axes[0].errorbar(rows, mean, std, capsize=2, **drawn)
            axes[1].plot(seconds, mean, **drawn)
        for axis, x in (
            (axes[0], "labelled training rows (log)"),
            (axes[1], "seconds of training (log)"),
        ):
            axis.set_xscale("log")
            log_ticks(axis.xaxis, *axis.get_xlim())
            at = f", {place}" if axis is axes[0] else ""
            below = f"{x}\nbars: ± one standard deviation over seeds" if spread_shown and at else x
            finish(axis, f"{metric.title} against {x.split(' (')[0]}{at}", below, metric.title)
        legend(axes[1])
        return figure

    return Findings("budget", place, section, records, draw, f"{metric.title} and budget.")
