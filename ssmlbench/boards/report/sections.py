"""The sections of a report: the figures of all boards, with a limit on their number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from ssmlbench.boards.board import Board
from ssmlbench.boards.columns import COSTS
from ssmlbench.boards.query import Query
from ssmlbench.boards.render import title
from ssmlbench.boards.report import FIGURE_KINDS
from ssmlbench.boards.report.analyses import analysis_sections
from ssmlbench.boards.report.critical_difference import critical_differences
from ssmlbench.boards.report.histories import CellHistories
from ssmlbench.boards.report.series import Series, cost_quality, dots, named, over_levels
from ssmlbench.boards.report.style import Styles
from ssmlbench.core.counts import counted
from ssmlbench.protocol.metrics import METRICS

CURVES = 60
"""Methods × levels whose training curves are drawn."""
CELLS = 30
"""Levels of boards for which a figure over epochs or of cost is drawn."""
OPEN = 4
"""Methods of a level whose training curves are shown at first."""


@dataclass(frozen=True)
class MethodToggle:
    """Figures that a reader can show or hide together."""

    name: str
    series: tuple[Series, ...]
    shown: bool


@dataclass
class Group:
    """The figures of one board or one level, under one heading."""

    heading: str  # empty: the figures say where they are from
    series: list[Series] = field(default_factory=list)
    dataset: str = ""  # whose figures they are; empty for several
    toggles: list[MethodToggle] = field(default_factory=list)


@dataclass
class FigureSection:
    """One section of the report: a heading, an explanation and its figures."""

    key: str
    heading: str
    about: str
    groups: list[Group] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def series(self) -> Iterator[Series]:
        """All figures of the section, in order."""
        for group in self.groups:
            yield from group.series
            for toggle in group.toggles:
                yield from toggle.series


def report_sections(
    boards: Sequence[Board], query: Query, kinds: Sequence[str] = FIGURE_KINDS
) -> list[FigureSection]:
    """Return the figures of the boards, of all kinds or of some; a separate board has none."""
    main = [board for board in boards if not board.separate_reason]
    sections = [_quality(main)] if "quality" in kinds else []
    sections += [_critical_differences(main)] if "ranks" in kinds else []
    if {"pseudo", "training"} & set(kinds):
        sections += [section for section in _training(main) if section.key in kinds]
    sections += [_cost(main, query)] if "cost" in kinds else []
    if len(main) < len(boards) and sections:
        sections[0].notes.append(
            f"{len(boards) - len(main)} of the {len(boards)} leaderboards are separate and have no figures."
        )
    return [*sections, *(_analyses(main, query) if "analyses" in kinds else ())]


def _analyses(boards: Sequence[Board], query: Query) -> list[FigureSection]:
    sections = []
    for section in analysis_sections(boards, query):
        by_place: dict[str, Group] = {}
        for figure in section.figures:
            by_place.setdefault(figure.where, Group(figure.where)).series.append(figure)
        heading = f"Analysis: {section.name}"
        key = f"analysis-{section.name}"
        groups = list(by_place.values())
        if all(len(group.series) == 1 for group in groups):  # side by side; each says its place
            groups = [Group("", [*section.figures])]
        sections.append(FigureSection(key, heading, section.summary, groups, section.notes))
    return sections


def styles_of(boards: Sequence[Board]) -> Styles:
    """Return one style a method for the whole report; the best of each board choose first."""
    ranked = [[row.name for row in board.rows] for board in boards if not board.separate_reason]
    chosen = [name for names in ranked for name in named(names)]
    return Styles([*chosen, *(name for names in zip_longest(*ranked) for name in names if name)])


def _quality(boards: Sequence[Board]) -> FigureSection:
    section = FigureSection(
        "quality",
        "Each metric over π",
        "Mean over seeds, the band is ± one standard deviation. Labels name the best-ranked methods and "
        "the labelled-only baseline; the others are grey. With a single π, or none, each method is a "
        "row: the mean (filled), each seed (hollow) and ± one standard deviation.",
    )
    for board in boards:
        metrics = [metric for metric in board.metrics if metric.key in METRICS]
        if len(board.rows) == 1 and len(board.levels) == 1:
            section.notes.append(f"{title(board)}: one method, whose numbers are all in its table.")
            continue
        if len(board.levels) > 1:
            lines = [over_levels(board, metric) for metric in metrics]
            section.groups.append(Group(title(board), [*lines], board.dataset))
            continue
        rows = [dots(board, metric, board.levels[0]) for metric in metrics]
        section.groups.append(Group(title(board), [*rows], board.dataset))
        if left_out := max((each.left_out for each in rows), default=0):
            section.notes.append(f"{title(board)}: the {left_out} lowest rows are not drawn.")
    return section


def _critical_differences(boards: Sequence[Board]) -> FigureSection:
    section = FigureSection(
        "ranks",
        "Critical difference",
        "Average ranks over the cells (data set × level) of a regime. A bar joins methods whose ranks "
        "differ by less than Nemenyi's critical difference at 0.05.",
    )
    metrics = [metric for metric in boards[0].metrics if metric.key in METRICS]
    by_regime, section.notes = critical_differences(boards, metrics)
    for regime, diagrams in by_regime.items():
        section.groups.append(Group(regime, list(diagrams)))
    return section


def _training(boards: Sequence[Board]) -> list[FigureSection]:
    cells = [(board, level) for board in boards for level in board.levels]
    histories = [CellHistories(board, level) for board, level in cells[:CELLS]]
    not_drawn = []
    if len(cells) > CELLS:
        not_drawn.append(
            f"Drawn for the first {CELLS} of {len(cells)} levels; --dataset, --regime and --pi "
            "choose others."
        )
    return [_pseudo_labels(histories, not_drawn), _curves(histories, not_drawn)]


def _pseudo_labels(histories: Sequence[CellHistories], not_drawn: Sequence[str]) -> FigureSection:
    section = FigureSection(
        "pseudo",
        "Quality of the pseudo-labels",
        "Against the hidden labels, which no method sees; for the methods that make pseudo-labels of "
        "whole pools. Mean over seeds, the band is ± one standard deviation.",
    )
    section.notes += not_drawn
    for cell in histories:
        if found := cell.pseudo_labels():
            section.groups.append(Group(cell.where, list(found), cell.dataset))
    return section


def _curves(histories: Sequence[CellHistories], not_drawn: Sequence[str]) -> FigureSection:
    section = FigureSection(
        "training",
        "Training curves",
        "What each method logged, epoch by epoch: mean over seeds with a band of ± one standard "
        "deviation. Choose the methods to show.",
    )
    if unreadable := sum(cell.unreadable for cell in histories):
        section.notes.append(
            f"not in here, as their history.csv cannot be read: {counted(unreadable, 'run')}"
        )
    section.notes += not_drawn
    chosen = _share_out([list(cell.by_method) for cell in histories], CURVES)
    for cell, methods in zip(histories, chosen, strict=True):
        toggles = [
            MethodToggle(name, tuple(cell.curves(name)), shown=i < OPEN)
            for i, name in enumerate(methods)
        ]
        if toggles:
            section.groups.append(Group(cell.where, dataset=cell.dataset, toggles=toggles))
    total, drawn = sum(len(cell.by_method) for cell in histories), sum(map(len, chosen))
    if drawn < total:
        section.notes.append(
            f"Curves of {drawn} of {total} methods × levels, the best ranked of each; --method, "
            "--dataset and --pi choose others."
        )
    return section


def _share_out(ranked: Sequence[Sequence[str]], at_most: int) -> list[list[str]]:
    """The first names of each list, taken in turn until there are `at_most`."""
    chosen: list[list[str]] = [[] for _ in ranked]
    for names in zip_longest(*ranked):
        for taken, name in zip(chosen, names, strict=True):
            if name is not None and sum(map(len, chosen)) < at_most:
                taken.append(name)
    return chosen


def _cost(boards: Sequence[Board], query: Query) -> FigureSection:
    section = FigureSection(
        "cost",
        "Cost against quality",
        "Up and to the left is better (down, for losses). The dashed line joins the methods to which no "
        "other is both cheaper and better. Times compare only between runs of one machine.",
    )
    cells = [(board, level) for board in boards for level in board.levels]
    for board, level in cells[:CELLS]:
        found = [cost_quality(board, query, cost, level) for cost in COSTS.values()]
        series: list[Series] = [each for each in found if len(each.points) > 1]
        if series:
            section.groups.append(Group(series[0].where, series, board.dataset))
    if len(cells) > CELLS:
        section.notes.append(f"Drawn for the first {CELLS} of {len(cells)} levels.")
    if not section.groups:
        section.notes.append("Only one method: nothing to set its cost against.")
    return section
