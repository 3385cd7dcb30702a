"""The gain from unlabelled rows: each row of a board against its best row that uses labelled rows only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ssmlbench.boards.board import Board, BoardRow, Difference
from ssmlbench.boards.columns import COSTS, Column
from ssmlbench.boards.query import Query
from ssmlbench.core.intervals import fold_overlap, mean_with_interval
from ssmlbench.protocol.regimes import REGIMES
from ssmlbench.runs.finished import Finished

LEAST_SEEDS = 3
"""Common seeds below which a difference has no interval."""

Runs = Mapping[tuple[str, str], Sequence[Finished]]
"""The runs of a board by (row, level)."""


def add_differences(board: Board, runs: Runs, query: Query) -> None:
    """Fill in the baseline of a board, if it has one, and every row's difference to it."""
    metric = compared_metric(board)
    if metric is None or query.baseline == "none":
        return
    board.compared = metric
    for level in board.levels:
        baseline = _baseline(board, metric, level, query.baseline)
        others = [row for row in board.rows if (metric.key, level) in row.cells]
        if baseline is None or len(others) < 2:
            continue
        board.baselines[level] = baseline.name
        for row in others:
            if row is not baseline:
                cells = (each.cells[metric.key, level] for each in (row, baseline))
                ours, theirs = (dict(zip(c.seeds, c.values, strict=True)) for c in cells)
                difference = paired_difference(ours, theirs, board.setting["folds"])
                if difference is not None:
                    row.differences[level] = difference
    if query.draws and metric.key not in COSTS:
        _add_bootstrap(board, runs, query)


def compared_metric(board: Board) -> Column | None:
    """The metric of the differences: mAP if it is a column, else the first one; None if all are costs."""
    metrics = [metric for metric in board.metrics if metric.key not in COSTS]
    return next((m for m in metrics if m.key == "map"), metrics[0] if metrics else None)


def _baseline(board: Board, metric: Column, level: str, name: str) -> BoardRow | None:
    """The named row, or for `auto` the best one that uses labelled rows only.

    A row of older code is used only if it is named or if there is no other.
    """
    present = [row for row in board.rows if (metric.key, level) in row.cells]
    if name != "auto":
        named = [row for row in present if name in (row.name, row.variant)]
        return min(named, key=lambda row: (row.name != name, row.version), default=None)
    if not REGIMES[board.regime].has_unlabelled_rows:
        return None
    sign = 1 if metric.higher_is_better else -1
    labelled = [row for row in present if row.uses == "labelled rows"]
    newest = [row for row in labelled if not row.version]
    return max(
        newest or labelled, key=lambda row: sign * row.cells[metric.key, level].mean, default=None
    )


def paired_difference(
    ours: Mapping[int, float], theirs: Mapping[int, float], folds: int | None = None
) -> Difference | None:
    """The mean difference over common seeds with its 95 % t interval; None without a common seed.

    ours, theirs: values by seed. folds: the number of folds, if the seeds are folds; they share training
    rows, so the interval is wider.
    """
    values = [value - theirs[seed] for seed, value in ours.items() if seed in theirs]
    if not values:
        return None
    count = len(values)
    if count < LEAST_SEEDS:
        return Difference(math.fsum(values) / count, count)
    mean, interval = mean_with_interval(values, fold_overlap(folds))
    return Difference(mean, count, interval)


def _add_bootstrap(board: Board, runs: Runs, query: Query) -> None:
    """Intervals over test rows: both rows are judged on the same resampled rows."""
    from ssmlbench.boards.bootstrap import bootstrap
    from ssmlbench.runs.scores import StoredScores

    assert board.compared is not None
    key = board.compared.key
    for row in board.rows:
        for level, difference in row.differences.items():
            pair = [runs[name, level] for name in (row.name, board.baselines[level])]
            common = set.intersection(*({run.spec.seed for run in each} for each in pair))
            ours, theirs = (
                [StoredScores.read(run.folder) for run in each if run.spec.seed in common]
                for each in pair
            )
            if board.compared.uses_decision and any(
                run.lacking(query.decision) for run in (*ours, *theirs)
            ):
                continue
            interval = bootstrap(
                ours, [key], query.decision, query.convention, query.draws, baseline=theirs
            )[key]
            row.differences[level] = replace(difference, over_rows=interval)
