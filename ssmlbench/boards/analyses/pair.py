"""`analyse pair A B`: two methods on the same test rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
from ssmlbench.boards.analyses.drawing import finish, panels
from ssmlbench.boards.bootstrap import bootstrap
from ssmlbench.boards.query import Query
from ssmlbench.boards.report.style import HUES, INK
from ssmlbench.core.errors import UserError
from ssmlbench.protocol.metrics import METRICS, average_precision
from ssmlbench.runs.finished import Finished
from ssmlbench.runs.scores import StoredScores

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEVEL, POWER = 0.05, 0.8
MOST_SEEDS, MOST_LABELS = 10_000, 60

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
            raise UserError(f"analyse pair {a} {b}: name two rows that differ")
        if not options["bootstrap"] >= 100:
            raise UserError(f"--bootstrap {options['bootstrap']}: take at least 100 draws")
        if not any(key in METRICS for key in query.metrics):
            raise UserError("analyse pair: --metric names costs only; name a metric, e.g. map")
        found, reasons = [], []
        for cell in cells_with(cells, (a, b), f"analyse pair {a} {b}"):
            try:
                found.append(_of_cell(cell, a, b, query, options["bootstrap"]))
            except UserError as error:
                reasons.append(str(error))
        if not found:
            raise UserError(reasons[0])
        if reasons:
            notes = [*found[-1].table.notes, *(f"Left out: {reason}" for reason in reasons)]
            found[-1] = replace(found[-1], table=replace(found[-1].table, notes=notes))
        return found


def seeds_needed(difference: float, deviation: float) -> int | None:
    """Seeds for a paired t test to see a difference with 80 % power at 0.05; None: more than MOST_SEEDS."""
    if difference == 0:
        return None
    seeds = np.arange(2, MOST_SEEDS + 1)
    enough = np.flatnonzero(detectable(seeds, deviation) <= abs(difference))
    return int(seeds[enough[0]]) if len(enough) else None


def detectable(seeds: ArrayLike, deviation: float) -> NDArray[np.float64]:
    """The smallest mean difference that a paired t test sees with 80 % power at 0.05.

    (t_{1 − 0.05/2} + t_{0.8}) · s / √n with n − 1 degrees of freedom.
    """
    from scipy.stats import t

    count = np.asarray(seeds, dtype=np.float64)
    quantiles = t.ppf(1 - LEVEL / 2, count - 1) + t.ppf(POWER, count - 1)
    return np.asarray(quantiles * deviation / np.sqrt(count))


def label_wins(
    a: Sequence[StoredScores], b: Sequence[StoredScores]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean difference a − b of each label's average precision over common seeds, and its deviation."""
    differences = np.stack(
        [
            np.asarray(average_precision(one.scores, one.truth))
            - np.asarray(average_precision(two.scores, two.truth))
            for one, two in zip(a, b, strict=True)
        ]
    )
    deviation = (
        differences.std(axis=0, ddof=1) if len(differences) > 1 else np.zeros(differences.shape[1])
    )
    return differences.mean(axis=0), deviation


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
    stored = {name: [scores for _, scores in found] for name, found in scored.items()}
    truth = stored[a][0].truth
    if any(not np.array_equal(one.truth, truth) for one in (*stored[a], *stored[b])):
        raise UserError(
            f"analyse pair: the runs of {cell.where} were judged on different test rows, as each fold of "
            "--regime given has its own; `ssmlbench compare --stats` compares them seed by seed"
        )
    return kept, stored


def _of_cell(cell: RunCell, a: str, b: str, query: Query, draws: int) -> Findings:
    kept, stored = _common_runs(cell, a, b)
    seeds = [run.spec.seed for run in kept[a]]
    every = [*stored[a], *stored[b]]
    old = any(one.lacking(query.decision) for one in every)
    metrics = [k for k in query.metrics if k in METRICS and not (old and METRICS[k].uses_decision)]
    if not metrics:
        raise UserError(
            f"analyse pair: the runs are older than --decision {query.decision}; type --decision threshold"
        )
    intervals = bootstrap(
        stored[a], metrics, query.decision, query.convention, draws, baseline=stored[b]
    )
    records: list[dict[str, Any]] = []
    body = []
    for key in metrics:
        values = [
            np.asarray([query.value(run, key) for run in kept[name]], dtype=float)
            for name in (a, b)
        ]
        apart = values[0] - values[1]
        deviation = float(apart.std(ddof=1)) if len(seeds) > 1 else math.nan
        mean, (low, high) = float(apart.mean()), intervals[key]
        wanted = seeds_needed(mean, deviation) if len(seeds) > 1 else None
        least = float(detectable(len(seeds), deviation)) if len(seeds) > 1 else math.nan
        facts = {
            "kind": "metric",
            "metric": key,
            "a": float(values[0].mean()),
            "b": float(values[1].mean()),
        }
        records.append(
            {
                **facts,
                "difference": mean,
                "low": low,
                "high": high,
                "std_over_seeds": deviation,
                "seeds": len(seeds),
                "minimum_detectable": least,
                "seeds_needed": wanted,
            }
        )
        side = a if low > 0 else b if high < 0 else "–"
        if side != "–" and not METRICS[key].higher_is_better:
            side = b if side == a else a
        interval = "" if math.isnan(low) else f" [{low:+.4f}, {high:+.4f}]"
        numbers = [f"{facts['a']:.4f}", f"{facts['b']:.4f}", f"{mean:+.4f}{interval}"]
        shown = "–" if math.isnan(least) else f"{least:.4f}"
        body.append([METRICS[key].title, *numbers, side, shown, wanted or "–"])
    mean_by_label, deviation_by_label = label_wins(stored[a], stored[b])
    names = label_names(cell, len(mean_by_label))
    for k, name in enumerate(names):
        facts = {"kind": "label", "label": name, "difference": mean_by_label[k]}
        records.append({**facts, "std_over_seeds": deviation_by_label[k], "seeds": len(seeds)})
    defined = mean_by_label[np.isfinite(mean_by_label)]
    wins, losses = int((defined > 0).sum()), int((defined < 0).sum())
    section = table(
        f"{cell.where} · {a} against {b}",
        [
            "metric",
            a,
            b,
            "difference [95 % over test rows]",
            "better",
            "detectable",
            "seeds needed",
        ],
        body,
        f"{len(seeds)} common seed{'s' * (len(seeds) != 1)}; both on the same resampled test rows, "
        f"{draws} draws; label sets by "
        f"{query.decision}.",
        f"Average precision of labels: {a} is ahead on {wins}, {b} on {losses} of {len(defined)}.",
        "detectable: the smallest mean difference over seeds that this many seeds show with 80 % power "
        "(paired t test at 0.05); seeds needed: for the difference seen. The interval is over test rows, "
        "not over training seeds.",
    )

    def draw() -> Figure:
        order = np.argsort(-np.nan_to_num(mean_by_label), kind="stable")
        order = order[np.isfinite(mean_by_label[order])]
        shown = order if len(order) <= MOST_LABELS else np.concatenate([order[:30], order[-30:]])
        some = "" if len(shown) == len(order) else f", {len(shown)} of {len(order)} labels"
        heights = [40 + 17 * len(metrics), max(110, 40 + 9.5 * len(shown))]
        figure, axes = panels(2, height=sum(heights) / 2 + 20, ratios=heights)
        of_metrics = [record for record in records if record["kind"] == "metric"]
        bars = [(r["difference"], r["low"], r["high"]) for r in of_metrics]
        measured = [METRICS[record["metric"]] for record in of_metrics]
        ahead = [(bar[0] >= 0) == m.higher_is_better for bar, m in zip(bars, measured, strict=True)]
        titles = [m.title if m.higher_is_better else f"{m.title} ↓" for m in measured]
        _differences(axes[0], bars, ahead, titles)
        finish(
            axes[0],
            f"{a} − {b} per metric, {cell.where}",
            f"difference (↓: lower is better)\n(filled: {a} ahead; bar: 95 % over test rows)",
            "",
            named_rows=True,
        )
        bars = [
            (m, m - d, m + d)
            for m, d in zip(mean_by_label[shown], deviation_by_label[shown], strict=True)
        ]
        ahead = [bar[0] >= 0 for bar in bars]
        _differences(axes[1], bars, ahead, [names[k][:22] for k in shown])
        finish(
            axes[1],
            f"{a} − {b} per label{some}",
            f"difference of average precision\n(filled: {a} ahead; bar: ± std over seeds)",
            "",
            named_rows=True,
        )
        return figure

    return Findings(f"pair {a} {b}", cell.where, section, records, draw, f"{a} against {b}.")


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
