"""`analyse pair A B`: two methods on the same test rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ssmlbench.boards.analyses.contract import (
    Analysis,
    Findings,
    Option,
    RunCell,
    cells_with,
    label_names,
    table,
    with_scores,
)
from ssmlbench.boards.analyses.differences import (
    LabelDifferences,
    MetricDifference,
    label_differences,
    metric_difference,
)
from ssmlbench.boards.analyses.drawing import finish, panels
from ssmlbench.boards.baseline import LEAST_SEEDS
from ssmlbench.boards.bootstrap import bootstrap
from ssmlbench.boards.query import Query
from ssmlbench.boards.render.document import TableSection
from ssmlbench.boards.report.style import HUES, INK
from ssmlbench.core.counts import counted
from ssmlbench.core.errors import UserError
from ssmlbench.protocol.metrics import METRICS
from ssmlbench.runs.finished import Finished
from ssmlbench.runs.scores import StoredScores

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LABELS = 60

Pairs = Mapping[str, Sequence[Finished]]
"""Row → its runs, by seed."""


class PairAnalysis(Analysis):
    """The difference of two rows per metric and label, and how many seeds would show it."""

    name = "pair"
    summary = "Two methods on the same test rows: difference, wins per label, seeds needed."
    arguments = ("a", "b")
    options = (Option("bootstrap", 1000, "Draws of the test rows."),)
    in_report = False

    def find(
        self, cells: Sequence[RunCell], query: Query, options: Mapping[str, Any]
    ) -> list[Findings]:
        """One finding for each cell that has both rows."""
        a, b = str(options["a"]), str(options["b"])
        if a == b:
            raise UserError(f"analyse pair {a} {b}: name two different rows")
        if not options["bootstrap"] >= 100:
            raise UserError(f"--bootstrap {options['bootstrap']}: take at least 100 draws")
        if not any(key in METRICS for key in query.metrics):
            raise UserError("analyse pair: --metric names costs only; name a metric, e.g. map")
        findings, reasons = [], []
        for cell in cells_with(cells, (a, b), f"analyse pair {a} {b}"):
            try:
                findings.append(_of_cell(cell, a, b, query, options["bootstrap"]))
            except UserError as error:
                reasons.append(str(error))
        if not findings:
            raise UserError(reasons[0])
        if reasons:
            notes = [*findings[-1].table.notes, *(f"Left out: {reason}" for reason in reasons)]
            findings[-1] = replace(findings[-1], table=replace(findings[-1].table, notes=notes))
        return findings


def _common_runs(cell: RunCell, a: str, b: str) -> tuple[Pairs, dict[str, list[StoredScores]]]:
    """The runs of both rows with the seeds that both have, and their scores of the same test rows."""
    runs = {name: {run.spec.seed: run for run in cell.rows[name]} for name in (a, b)}
    seeds = sorted(runs[a].keys() & runs[b].keys())
    if not seeds:
        raise UserError(
            f"analyse pair: {a} and {b} have no common seed in {cell.where}; "
            f"`{cell.command([a, b])}` makes one"
        )
    kept = {name: [runs[name][seed] for seed in seeds] for name in (a, b)}
    scored, missing = with_scores(RunCell(cell.board, cell.level, kept))
    if missing.rows:
        folder = next(iter(missing.rows.values()))
        again = cell.command([a, b], lacking=True)
        raise UserError(
            f"analyse pair: {folder} has no readable scores.safetensors; `{again}` makes it"
        )
    stored = {name: [scores for _, scores in scored_runs] for name, scored_runs in scored.items()}
    truth = stored[a][0].truth
    if any(not np.array_equal(one.truth, truth) for one in (*stored[a], *stored[b])):
        raise UserError(
            f"analyse pair: the runs of {cell.where} were judged on different test rows, as each fold of "
            "--regime given has its own; `ssmlbench compare --stats` compares them seed by seed"
        )
    return kept, stored


def _of_cell(cell: RunCell, a: str, b: str, query: Query, draws: int) -> Findings:
    runs, stored = _common_runs(cell, a, b)
    metrics = _judged_metrics([*stored[a], *stored[b]], query)
    intervals = bootstrap(
        stored[a], metrics, query.decision, query.convention, draws, baseline=stored[b]
    )
    by_metric = [metric_difference(key, runs[a], runs[b], query, intervals[key]) for key in metrics]
    names = label_names(cell, stored[a][0].truth.shape[1])
    by_label = label_differences(names, stored[a], stored[b])
    return Findings(
        f"pair {a} {b}",
        cell.where,
        _table(cell.where, a, b, by_metric, by_label, query, draws),
        [*({"kind": "metric", **asdict(one)} for one in by_metric), *_label_records(by_label)],
        lambda: _figure(cell.where, a, b, by_metric, by_label),
        f"{a} against {b}.",
    )


def _judged_metrics(stored: Sequence[StoredScores], query: Query) -> list[str]:
    """The metrics that are asked for and that the stored scores of all runs give."""
    old = any(one.lacking(query.decision) for one in stored)
    metrics = [k for k in query.metrics if k in METRICS and not (old and METRICS[k].uses_decision)]
    if not metrics:
        raise UserError(
            f"analyse pair: the runs are older than --decision {query.decision}; type --decision threshold"
        )
    return metrics


def _label_records(by_label: LabelDifferences) -> list[dict[str, Any]]:
    return [
        {
            "kind": "label",
            "label": name,
            "difference": mean,
            "std_over_seeds": deviation,
            "seeds": by_label.seeds,
        }
        for name, mean, deviation in zip(
            by_label.names, by_label.mean, by_label.deviation, strict=True
        )
    ]


def _table(
    where: str,
    a: str,
    b: str,
    by_metric: Sequence[MetricDifference],
    by_label: LabelDifferences,
    query: Query,
    draws: int,
) -> TableSection:
    defined = by_label.mean[np.isfinite(by_label.mean)]
    wins, losses = int((defined > 0).sum()), int((defined < 0).sum())
    seeds = by_label.seeds
    return table(
        f"{where} · {a} against {b}",
        [
            "metric",
            a,
            b,
            "difference",
            "95 % over test rows",
            "95 % over seeds",
            "better",
            "detectable",
            "seeds needed",
        ],
        [_metric_row(one, a, b) for one in by_metric],
        f"{counted(seeds, 'common seed')}; both on the same resampled test rows, "
        f"{draws} draws; label sets by "
        f"{query.decision}.",
        f"Average precision of labels: {a} is ahead on {wins}, {b} on {losses} of {len(defined)}.",
        "detectable: the smallest mean difference over seeds that this many seeds show with 80 % power "
        "(paired t test at 0.05); seeds needed: for the difference seen.",
        "better: where 0 lies outside of both intervals; the one over seeds is paired, and needs at least "
        f"{LEAST_SEEDS} of them.",
    )


def _metric_row(one: MetricDifference, a: str, b: str) -> list[object]:
    """A row of the table."""
    least = "–" if math.isnan(one.minimum_detectable) else f"{one.minimum_detectable:.4f}"
    return [
        METRICS[one.metric].title,
        f"{one.a:.4f}",
        f"{one.b:.4f}",
        f"{one.difference:+.4f}",
        _interval(one.low, one.high),
        _interval(one.low_over_seeds, one.high_over_seeds),
        (a if one.first_ahead else b) if one.is_sure else "–",
        least,
        one.seeds_needed or "–",
    ]


def _interval(low: float, high: float) -> str:
    return "–" if math.isnan(low) else f"[{low:+.4f}, {high:+.4f}]"


def _figure(
    where: str,
    a: str,
    b: str,
    by_metric: Sequence[MetricDifference],
    by_label: LabelDifferences,
) -> Figure:
    """The metrics above, the labels below: those with the largest differences, both ways."""
    order = np.argsort(-np.nan_to_num(by_label.mean), kind="stable")
    order = order[np.isfinite(by_label.mean[order])]
    shown = order if len(order) <= MOST_LABELS else np.concatenate([order[:30], order[-30:]])
    heights = [40 + 17 * len(by_metric), max(110, 40 + 9.5 * len(shown))]
    figure, axes = panels(2, height=sum(heights) / 2 + 20, ratios=heights)
    _draw_metrics(axes[0], by_metric)
    finish(
        axes[0],
        f"{a} − {b} per metric, {where}",
        f"difference (↓: lower is better)\n(filled: {a} ahead; bar: 95 % over test rows)",
        "",
        named_rows=True,
    )
    _draw_labels(axes[1], by_label, shown)
    some = "" if len(shown) == len(order) else f", {len(shown)} of {len(order)} labels"
    finish(
        axes[1],
        f"{a} − {b} per label{some}",
        f"difference of average precision\n(filled: {a} ahead; bar: ± std over seeds)",
        "",
        named_rows=True,
    )
    return figure


def _draw_metrics(axis: Axes, by_metric: Sequence[MetricDifference]) -> None:
    metrics = [METRICS[one.metric] for one in by_metric]
    _differences(
        axis,
        [(one.difference, one.low, one.high) for one in by_metric],
        [one.first_ahead for one in by_metric],
        [m.title if m.higher_is_better else f"{m.title} ↓" for m in metrics],
    )


def _draw_labels(axis: Axes, by_label: LabelDifferences, shown: NDArray[np.intp]) -> None:
    bars = [
        (mean, mean - deviation, mean + deviation)
        for mean, deviation in zip(by_label.mean[shown], by_label.deviation[shown], strict=True)
    ]
    ahead = [mean >= 0 for mean, _, _ in bars]
    _differences(axis, bars, ahead, [by_label.names[k][:22] for k in shown])


def _differences(
    axis: Axes,
    bars: Sequence[tuple[float, float, float]],
    ahead: Sequence[bool],
    names: Sequence[str],
) -> None:
    """A row for each difference (value, low, high): filled where the first of the pair is ahead."""
    for y, ((value, low, high), first) in enumerate(zip(bars, ahead, strict=True)):
        colour = HUES[0] if first else HUES[1]
        axis.plot([low, high], [y, y], color=colour, linewidth=0.9)
        fill = colour if first else "white"
        axis.plot([value], [y], "o" if first else "s", color=colour, mfc=fill, ms=4)
    axis.axvline(0, color=INK, linewidth=0.8)
    axis.set_yticks(range(len(names)), names, fontsize=7.5)
    axis.set_ylim(len(names) - 0.4, -0.6)
