"""The papers' numbers joined with our boards: by data set, regime, method and its settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ssmlbench.boards.board import Board, BoardRow, level_number
from ssmlbench.boards.papers import OurMethod
from ssmlbench.boards.published import PublishedValue
from ssmlbench.protocol.metrics import METRICS


@dataclass
class JoinedRow:
    """One method of one paper beside our row of the same method, if there is one."""

    method: str
    published: dict[tuple[str, str], PublishedValue]  # by (metric key, level)
    measured: BoardRow | None
    same_data: bool = True  # whether ours were made with the data that papers describe

    @property
    def first(self) -> PublishedValue | None:
        """Any of the published values: they agree in paper and method."""
        return next(iter(self.published.values()), None)

    def difference(self, metric: str, level: str) -> float | None:
        """Our number minus the paper's; None unless there are both, on the same data."""
        theirs = self.published.get((metric, level))
        ours = self.measured.cells.get((metric, level)) if self.measured else None
        return ours.mean - theirs.value if ours and theirs and self.same_data else None


@dataclass
class SideBySide:
    """The papers' numbers on one data set in one regime, and our board there if there is one."""

    dataset: str
    regime: str
    levels: list[str]
    metrics: list[str]
    rows: list[JoinedRow]
    board: Board | None


def side_by_side(values: Sequence[PublishedValue], boards: Sequence[Board]) -> list[SideBySide]:
    """Return one table for each data set and regime with published numbers.

    Only main boards are joined: the runs of a separate board have another setting.
    """
    groups: dict[tuple[str, str], list[PublishedValue]] = defaultdict(list)
    for value in values:
        groups[value.dataset, value.regime].append(value)
    ours = {(board.dataset, board.regime): board for board in boards if not board.separate_reason}
    return [_table(groups[key], ours.get(key)) for key in sorted(groups)]


def _table(values: Sequence[PublishedValue], board: Board | None) -> SideBySide:
    by_method: dict[tuple[str, str], dict[tuple[str, str], PublishedValue]] = defaultdict(dict)
    for value in values:
        # Two names of a paper for one method (a table and its ablation) stay two rows.
        by_method[value.paper.key, value.paper_method][value.metric, value.level] = value
    rows = []
    for published in by_method.values():
        first = next(iter(published.values()))
        measured = _our_row(first.our_method, board)
        name = measured.name if measured else first.method
        same_data = board is None or not board.unlike_published
        rows.append(JoinedRow(name, published, measured, same_data))
    joined = [row.measured.name for row in rows if row.measured]
    our_rows = board.rows if board else []
    rows += [JoinedRow(row.name, {}, row) for row in our_rows if row.name not in joined]
    our_metrics = [metric.key for metric in board.metrics] if board else []
    their_metrics = {value.metric for value in values}
    levels = {value.level for value in values} | set(board.levels if board else ())
    return SideBySide(
        values[0].dataset,
        values[0].regime,
        sorted(levels, key=level_number),
        [key for key in METRICS if key in their_metrics or key in our_metrics],
        rows,
        board,
    )


def _our_row(method: OurMethod | None, board: Board | None) -> BoardRow | None:
    """The row of our board whose runs are the method."""
    if method is None or board is None:
        return None
    matching = [run for run in board.runs if method.matches(run.spec)]
    # If a hyper-parameter has several values, none of them is chosen by its result.
    variants = {run.spec.variant for run in matching}
    if len(variants) > 1:
        matching = [run for run in matching if run.spec.variant == method.label]
    names = {board.row_of(run) for run in matching}
    rows = [row for row in board.rows if row.name in names]
    return min(rows, key=lambda row: bool(row.version), default=None)
