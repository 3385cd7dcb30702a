"""Builds boards from finished runs: one for each data set, regime and setting, with mean ± std over seeds.

Runs of different settings (encoder, epochs, protocol) never share a cell: they form separate boards, which
name the difference. render/ shows boards.
"""

from __future__ import annotations

import math
import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ssmlbench.boards.baseline import add_differences
from ssmlbench.boards.board import Board, BoardRow, Cell, level_number, unlike_published
from ssmlbench.boards.columns import COLUMNS, COSTS, column_value
from ssmlbench.boards.query import Query
from ssmlbench.boards.versions import Versions
from ssmlbench.core.counts import counted
from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import FIELDS, REGIME_NUMBERS, SETTING, RunSpec
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.protocol.metrics import METRICS
from ssmlbench.runs.finished import Finished
from ssmlbench.runs.metric_values import Unavailable

Setting = tuple[Any, ...]
"""The values of SETTING; None for fields that an estimator does not read."""

Reasons = Counter[tuple[str, str]]
"""The number of runs that lack a value, by (metric's title, reason)."""


def build_boards(runs: Iterable[Finished], query: Query) -> list[Board]:
    """The boards of all runs of the query, main boards before separate ones.

    runs: all runs that were read, since the newest version of a method's code does not depend on the query.
    """
    runs = list(runs)
    versions = Versions.of(runs)
    versions.check(query.versions, runs)
    groups = _wanted_groups(runs, query)
    boards = [
        board for key in sorted(groups) for board in _boards_of_group(groups[key], query, versions)
    ]
    names = {name for board in boards for row in board.rows for name in (row.name, row.variant)}
    if boards and query.baseline not in ("auto", "none", *names):
        raise UserError(
            f"--baseline {query.baseline}: no such row; auto, none or a row's name."
            f"{did_you_mean(query.baseline, names)}"
        )
    return boards


def shown_runs(runs: Sequence[Finished], query: Query, versions: Versions) -> list[Finished]:
    """The runs that the boards of a query show: without those of hidden versions."""
    return [
        run
        for group in _wanted_groups(runs, query).values()
        for _, members in _by_setting(group)
        for run in versions.shown(members, query.versions)
    ]


def _wanted_groups(runs: Iterable[Finished], query: Query) -> dict[tuple[str, str], list[Finished]]:
    """The runs of the query, by data set and regime."""
    groups: dict[tuple[str, str], list[Finished]] = defaultdict(list)
    for run in runs:
        if query.wants(run.spec):
            groups[run.spec.dataset, run.spec.regime].append(run)
    return groups


def _boards_of_group(runs: Sequence[Finished], query: Query, versions: Versions) -> list[Board]:
    ordered = _by_setting(runs)
    main = dict(zip(SETTING, ordered[0][0], strict=True))
    boards = []
    for values, members in ordered:
        setting = dict(zip(SETTING, values, strict=True))
        reasons = [
            f"{k} {v} instead of {main[k]}"
            for k, v in setting.items()
            if v != main[k] and not (FIELDS[k].of_training and None in (v, main[k]))
        ]
        shown = versions.shown(members, query.versions)
        board = _board(shown, query, setting, ", ".join(reasons), versions)
        kept = set(map(id, shown))
        hidden = Counter(versions.row_name(run.spec) for run in members if id(run) not in kept)
        board.hidden = dict(sorted(hidden.items()))
        boards.append(board)
    return boards


def _by_setting(runs: Sequence[Finished]) -> list[tuple[Setting, list[Finished]]]:
    """Runs by their setting, the main one first: the published data, most runs, the longer training.

    An estimator joins the first methods whose setting equals its own apart from training.
    """
    trained: dict[Setting, list[Finished]] = defaultdict(list)
    fitted: dict[Setting, list[Finished]] = defaultdict(list)
    for run in runs:
        setting = _setting_of(run.spec)
        (fitted if run.spec.is_estimator else trained)[setting].append(run)
    ordered = sorted(
        trained.items(),
        key=lambda item: (_is_other_data(item[1]), -len(item[1]), -item[1][0].spec.epochs),
    )
    for own, members in sorted(fitted.items(), key=lambda item: -len(item[1])):
        for setting, group in ordered:
            if all(a in (None, b) for a, b in zip(own, setting, strict=True)):
                group += members
                break
        else:
            ordered.append((own, members))
    return ordered


def _is_other_data(runs: Sequence[Finished]) -> bool:
    """Whether the data of the runs, which are the same for all, are not the published data set."""
    return any(map(unlike_published, runs))


def _setting_of(spec: RunSpec) -> Setting:
    """The spec's values of SETTING; read in one call if none of them has to be replaced."""
    if spec.is_estimator or spec.tuned or spec.backbone_name != spec.backbone:
        return tuple(_setting(spec, name) for name in SETTING)
    return _SETTING_FIELDS(spec)


_SETTING_FIELDS: Callable[[RunSpec], Setting] = operator.attrgetter(*SETTING)


def _setting(spec: RunSpec, name: str) -> Any:
    if spec.is_estimator and FIELDS[name].of_training:
        return None
    centre = spec.tuned.get("centre", spec.tuned)  # studies before recipes: {"lr": …} beside it
    if name in centre:  # a tuned run is compared at the values it was tuned around
        return centre[name]
    return spec.backbone_name if name == "backbone" else getattr(spec, name)


def _board(
    runs: Sequence[Finished],
    query: Query,
    setting: dict[str, Any],
    separate_reason: str,
    versions: Versions,
) -> Board:
    spec = runs[0].spec
    names = {id(run): versions.row_name(run.spec) for run in runs}
    levels = sorted({run.spec.level for run in runs}, key=level_number)
    cells: dict[tuple[str, str], list[Finished]] = defaultdict(list)
    by_row: dict[str, list[Finished]] = defaultdict(list)
    for run in runs:
        by_row[names[id(run)]].append(run)
        if not run.diverged:
            cells[names[id(run)], run.spec.level].append(run)
    rows, reasons = [], Reasons()
    for name, members in sorted(by_row.items()):
        row = _row(name, members, versions)
        for level in levels:
            if (name, level) in cells:
                by_metric = _cells(cells[name, level], query, reasons)
                row.cells |= {(key, level): cell for key, cell in by_metric.items()}
        rows.append(row)
    board = Board(
        dataset=spec.dataset,
        regime=spec.regime,
        levels=levels,
        metrics=[COLUMNS[key] for key in query.metrics],
        decision=query.decision,
        selection=str(setting["selection"] or RunSpec.selection),
        convention=query.convention,
        setting=setting,
        rows=rows,
        separate_reason=separate_reason,
        missing=_missing(runs, versions),
        diverged=[
            f"{names[id(run)]} seed {run.spec.seed} ({run.diverged})"
            for run in runs
            if run.diverged
        ],
        unavailable=[
            f"{title} of {counted(count, 'run')}: {reason}"
            for (title, reason), count in reasons.items()
        ],
        unlike_published=next(filter(None, map(unlike_published, runs)), []),
        runs=list(runs),
        versions=versions,
    )
    _rank(board)
    add_differences(board, cells, query)
    return board


def _row(name: str, runs: Sequence[Finished], versions: Versions) -> BoardRow:
    """The row of these runs, without its cells."""
    spec = runs[0].spec
    uses = {run.result.get("uses", "") for run in runs}
    return BoardRow(
        name,
        {},
        trials=spec.tuned.get("trials", 0),
        uses=uses.pop() if len(uses) == 1 else "",
        is_estimator=spec.is_estimator,
        version=versions.label(spec),
    )


def _cells(runs: Sequence[Finished], query: Query, reasons: Reasons) -> dict[str, Cell]:
    """The runs of one method at one level, as one cell per metric. reasons: counts missing values."""
    by_seed = sorted(runs, key=lambda run: run.spec.seed)
    cells = {}
    for key in query.metrics:
        values, seeds = [], []
        for run in by_seed:
            try:
                values.append(column_value(run, key, query.decision, query.convention))
                seeds.append(run.spec.seed)
            except Unavailable as error:
                reasons[COLUMNS[key].title, str(error)] += 1
        if values:
            cells[key] = Cell(*_mean_and_std(values), tuple(seeds), tuple(values))
    if query.draws:
        for key, interval in _intervals(by_seed, query, cells).items():
            cells[key] = replace(cells[key], interval=interval)
    return cells


def _mean_and_std(values: Sequence[float]) -> tuple[float, float | None]:
    """The sample's; NumPy takes ten times as long on a handful of seeds."""
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return mean, None
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


def _intervals(
    runs: Sequence[Finished], query: Query, cells: dict[str, Cell]
) -> dict[str, tuple[float, float]]:
    """Bootstrap intervals of the metrics that all runs of a cell have."""
    from ssmlbench.boards.bootstrap import bootstrap
    from ssmlbench.runs.scores import StoredScores

    if any(run.spec.folds for run in runs):
        raise UserError(
            "--bootstrap resamples the rows of one test set, and each fold of --regime given has its "
            "own; leave --bootstrap out: the spread over folds is shown"
        )
    metrics = [key for key in cells if key in METRICS and len(cells[key].seeds) == len(runs)]
    try:
        scores = [StoredScores.read(run.folder) for run in runs]
    except (OSError, ValueError) as error:
        raise UserError(
            f"--bootstrap needs the runs' stored scores ({error}): give the results folder (--results) "
            "that has them, or leave --bootstrap out"
        ) from None
    if any(run.lacking(query.decision) for run in scores):
        metrics = [key for key in metrics if not METRICS[key].uses_decision]
    return bootstrap(scores, metrics, query.decision, query.convention, query.draws)


def _rank(board: Board) -> None:
    """Rank the rows within each column, with mean ranks for ties, and order them by their average rank.

    Costs count only on a board without metrics.
    """
    places: dict[str, list[float]] = defaultdict(list)
    for metric, level in board.columns:
        present = [row for row in board.rows if (metric.key, level) in row.cells]
        sign = -1 if metric.higher_is_better else 1
        values = np.array([sign * row.cells[metric.key, level].mean for row in present])
        for row, value in zip(present, values, strict=True):
            better, equal = int((values < value).sum()), int((values == value).sum())
            cell = row.cells[metric.key, level]
            row.cells[metric.key, level] = replace(cell, place=better + 1)
            if metric.key not in COSTS or all(m.key in COSTS for m in board.metrics):
                places[row.name].append(better + (equal + 1) / 2)
    for row in board.rows:
        row.rank = float(np.mean(places[row.name])) if places[row.name] else math.nan
    board.rows.sort(key=lambda row: (math.isnan(row.rank), row.rank, row.name))


def _missing(runs: Sequence[Finished], versions: Versions) -> list[str]:
    """The runs that are missing for a full grid over these methods, levels and seeds."""
    present = {(versions.row_name(run.spec), run.spec.level, run.spec.seed) for run in runs}
    names, levels, seeds = (sorted(set(axis)) for axis in zip(*present, strict=True))
    symbol = number.symbol if (number := REGIME_NUMBERS.get(runs[0].spec.regime)) else ""
    lines = []
    for name in names:
        for level in sorted(levels, key=level_number):
            absent = [str(seed) for seed in seeds if (name, level, seed) not in present]
            if absent:
                where = f" {symbol} {level}" if symbol else ""
                lines.append(f"{name}{where}: seed {', '.join(absent)}")
    return lines
