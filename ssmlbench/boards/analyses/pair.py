"""`analyse pair A B`: two methods on the same test rows."""

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
    label_names,
    table,
    with_scores,
)
from ssmlbench.boards.analyses.drawing import finish, panels
from ssmlbench.boards.bootstrap import bootstrap
from ssmlbench.boards.query import Query
from ssmlbench.boards.report.style import HUES, INK
from ssmlbench.core.errors import UserError
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.protocol.metrics import METRICS, average_precision
from ssmlbench.runs.scores import StoredScores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVEL, POWER = 0.05, 0.8
MOST_SEEDS = 10_000


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
        names = dict.fromkeys(name for cell in cells for name in cell.rows)
        for name in (a, b):
            if name not in names:
                raise UserError(
                    f"analyse pair: no row {name!r} among the finished runs.{did_you_mean(name, names)}"
                )
        if not options["bootstrap"] >= 100:
            raise UserError(f"--bootstrap {options['bootstrap']}: take at least 100 draws")
        both = [cell for cell in cells if a in cell.rows and b in cell.rows]
        if not both:
            raise UserError(
                f"analyse pair: {a} and {b} were never run on the same data set, regime and π; "
                f"`{cells[0].command} --method {a},{b}` makes such runs"
            )
        return [_of_cell(cell, a, b, query, options["bootstrap"]) for cell in both]


def seeds_needed(difference: float, deviation: float) -> int | None:
    """Seeds for a paired t test to see a difference with 80 % power at 0.05; None: never."""
    for seeds in range(2, MOST_SEEDS + 1):
        if detectable(seeds, deviation) <= abs(difference):
            return seeds
    return None


def detectable(seeds: int, deviation: float) -> float:
    """The smallest mean difference that a paired t test sees with 80 % power at 0.05.

    (t_{1 − 0.05/2} + t_{0.8}) · s / √n with n − 1 degrees of freedom.
    """
    from scipy.stats import t

    freedom = seeds - 1
    return float(
        (t.ppf(1 - LEVEL / 2, freedom) + t.ppf(POWER, freedom)) * deviation / math.sqrt(seeds)
    )


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


def _of_cell(cell: RunCell, a: str, b: str, query: Query, draws: int) -> Findings:
    runs = {name: {run.spec.seed: run for run in cell.rows[name]} for name in (a, b)}
    seeds = sorted(runs[a].keys() & runs[b].keys())
    if not seeds:
        raise UserError(f"analyse pair: {a} and {b} have no common seed in {cell.where}")
    kept = {name: [runs[name][seed] for seed in seeds] for name in (a, b)}
    scored, missing = with_scores(RunCell(cell.board, cell.level, kept))
    if missing.rows:
        raise UserError(
            f"analyse pair: {next(iter(missing.rows.values()))} has no readable scores.safetensors; "
            f"`{cell.command} --method {a},{b}` makes it"
        )
    stored = {name: [scores for _, scores in found] for name, found in scored.items()}
    metrics = [key for key in query.metrics if key in METRICS]
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
        least = detectable(len(seeds), deviation) if len(seeds) > 1 else math.nan
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
        numbers = [
            f"{facts['a']:.4f}",
            f"{facts['b']:.4f}",
            f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]",
        ]
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
        f"{len(seeds)} common seeds; both on the same resampled test rows, {draws} draws; label sets by "
        f"{query.decision}.",
        f"Average precision of labels: {a} is ahead on {wins}, {b} on {losses} of {len(defined)}.",
        "detectable: the smallest mean difference over seeds that this many seeds show with 80 % power "
        "(paired t test at 0.05); seeds needed: for the difference seen. The interval is over test rows, "
        "not over training seeds.",
    )

    def draw() -> Figure:
        order = np.argsort(-np.nan_to_num(mean_by_label), kind="stable")
        figure, axes = panels(1, height=max(190, 40 + 9.5 * min(len(order), 60)))
        order = order[np.isfinite(mean_by_label[order])]
        shown = order if len(order) <= 60 else np.concatenate([order[:30], order[-30:]])
        some = "" if len(shown) == len(order) else f", {len(shown)} of {len(order)} labels"
        for y, k in enumerate(shown):
            ahead = mean_by_label[k] >= 0
            axes[0].errorbar(
                mean_by_label[k],
                y,
                xerr=deviation_by_label[k],
                fmt="o" if ahead else "s",
                color=HUES[0] if ahead else HUES[1],
                mfc=HUES[0] if ahead else "white",
                ms=4,
                linewidth=0.9,
            )
        axes[0].axvline(0, color=INK, linewidth=0.8)
        axes[0].set_yticks(range(len(shown)), [names[k][:22] for k in shown], fontsize=7.5)
        axes[0].set_ylim(len(shown) - 0.4, -0.6)
        finish(
            axes[0],
            f"{a} − {b} per label{some}, {cell.where}",
            f"difference of average precision\n(filled: {a} ahead; bar: ± std over seeds)",
            "",
            named_rows=True,
        )
        return figure

    return Findings(f"pair {a} {b}", cell.where, section, records, draw, f"{a} against {b}.")
